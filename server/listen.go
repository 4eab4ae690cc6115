package server

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/exeunt/exeunt/access"
)

// listen opens the listener, issues certificates for its names, and writes the
// administrator's kubeconfig, before the server answers the first request.
func listen(c Config) (net.Listener, *access.Identity, error) {
	host, _, _ := net.SplitHostPort(c.Listen) // checkAddresses has seen it
	listener, err := c.sockets.listen("api", c.Listen)
	if err != nil {
		return nil, nil, fmt.Errorf("listen on %s: %w", c.Listen, err)
	}
	if err := takeAuthority(c); err != nil {
		return nil, nil, errors.Join(err, listener.Close())
	}
	identity, err := access.Open(filepath.Join(c.Data, "pki"), certificateNames(c, host), time.Now())
	if err != nil {
		return nil, nil, errors.Join(err, listener.Close())
	}
	if err := identity.UseFiles(c.TLSFiles); err != nil {
		return nil, nil, errors.Join(err, listener.Close())
	}
	if err := identity.WriteKubeconfig(kubeconfig(c), "https://"+clientAddress(c.Listen, listener), time.Now()); err != nil {
		return nil, nil, errors.Join(err, listener.Close())
	}
	return listener, identity, nil
}

// checkAddresses refuses addresses and names that the server cannot use, before
// anything is written.
func checkAddresses(c Config) error {
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return fmt.Errorf("--listen %q: want HOST:PORT: %w", c.Listen, err)
	}
	if _, _, err := net.SplitHostPort(c.RegistryListen); c.RegistryListen != "" && err != nil {
		return fmt.Errorf("--registry-listen %q: want HOST:PORT: %w", c.RegistryListen, err)
	}
	if host, _, _ := net.SplitHostPort(c.RegistryListen); c.RegistryAnonymous && !loopback(host) {
		return fmt.Errorf("--registry-anonymous: every client that reaches %s could push and delete: listen on a loopback address, or leave the flag out", c.RegistryListen)
	}
	return checkNames(c.TLSNames)
}

// kubeconfig returns the path of the administrator's kubeconfig.
func kubeconfig(c Config) string { return filepath.Join(c.Data, "kubeconfig") }

// checkNames refuses names that a certificate cannot contain.
func checkNames(names []string) error {
	for _, name := range names {
		lower := strings.ToLower(name)
		if net.ParseIP(name) == nil && len(validation.IsDNS1123Subdomain(lower)) > 0 && len(validation.IsWildcardDNS1123Subdomain(lower)) > 0 {
			return fmt.Errorf("--tls-san %q: want a host name or an IP address, without a port", name)
		}
	}
	return nil
}

// certificateNames returns the names and addresses that clients may use for this
// server: loopback, the configured names, the machine's name and, if the API or the
// registry listens on all addresses, the machine's addresses.
func certificateNames(c Config, host string) []string {
	names := append(hostNames(host), registryNames(c)...)
	names = append(names, c.TLSNames...)
	registryHost, _, err := net.SplitHostPort(c.RegistryListen)
	if unspecified(host) || err == nil && unspecified(registryHost) {
		for _, ip := range machineAddresses() {
			names = append(names, ip.String())
		}
	}
	var unique []string
	for _, name := range names {
		if !slices.Contains(unique, name) {
			unique = append(unique, name)
		}
	}
	return unique
}

// hostNames returns the names in every certificate, and the host of --listen.
func hostNames(host string) []string {
	names := []string{"localhost", "127.0.0.1", "::1"}
	if !unspecified(host) && !loopback(host) {
		names = append(names, host)
	}
	if name, err := os.Hostname(); err == nil && name != "" {
		names = append(names, name)
	}
	return names
}

// unspecified says whether a host means all addresses of the machine.
func unspecified(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// machineAddresses returns the addresses at which other machines reach this one, IPv4
// first: those of its interfaces, without loopback and link-local addresses.
func machineAddresses() []net.IP {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil // clients can still use the names
	}
	var four, six []net.IP
	for _, address := range addresses {
		network, ok := address.(*net.IPNet)
		switch {
		case !ok || !network.IP.IsGlobalUnicast():
		case network.IP.To4() != nil:
			four = append(four, network.IP)
		default:
			six = append(six, network.IP)
		}
	}
	return append(four, six...)
}

// clientAddress returns the HOST:PORT of a listener for its clients. For a listener on
// all addresses, this is the first that other machines can use.
func clientAddress(listen string, l net.Listener) string {
	host, _, _ := net.SplitHostPort(listen)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if unspecified(host) {
		host = "127.0.0.1"
		if addresses := machineAddresses(); len(addresses) > 0 {
			host = addresses[0].String()
		}
	}
	return net.JoinHostPort(host, port)
}

// localURL returns the URL at which this process reaches its own API.
func localURL(listen string, l net.Listener) string {
	host, _, _ := net.SplitHostPort(listen)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if unspecified(host) {
		host = "127.0.0.1"
	}
	return "https://" + net.JoinHostPort(host, port)
}

// Addresses says how clients reach a server that has started.
type Addresses struct {
	Version    string `json:"version"`
	API        string `json:"api"`                // URL
	Kubeconfig string `json:"kubeconfig"`         // absolute path
	Registry   string `json:"registry,omitempty"` // URL; empty: no registry
	// RegistryToken is the path of a file with a password for the registry.
	RegistryToken string `json:"registryToken,omitempty"`
}

// String returns the addresses as text for people.
func (a Addresses) String() string {
	text := fmt.Sprintf("Exeunt %s serves the Kubernetes API at %s\n\n  export KUBECONFIG=%s\n  kubectl get namespaces\n\n", a.Version, a.API, a.Kubeconfig)
	if a.Registry != "" {
		text += fmt.Sprintf("The OCI registry is at %s\n\n", a.Registry)
	}
	if a.RegistryToken != "" {
		host := strings.TrimPrefix(a.Registry, "http://")
		text += fmt.Sprintf("  docker login -u %s --password-stdin %s <%s    # or podman, crane auth, oras, helm registry\n\n", localUser, host, a.RegistryToken)
	}
	return text
}

func addresses(c Config, l net.Listener, images *registryServer) Addresses {
	path := kubeconfig(c)
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	a := Addresses{Version: c.Version, API: "https://" + clientAddress(c.Listen, l), Kubeconfig: path}
	if images != nil {
		a.Registry, a.RegistryToken = images.url(), images.login.path()
	}
	return a
}
