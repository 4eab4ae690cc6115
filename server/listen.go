package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/exeunt/exeunt/access"
	"syscall"
)

// listen opens the listener, issues certificates for its names, and writes the
// administrator's kubeconfig, before the server answers the first request.
func listen(c Config) (net.Listener, *access.Identity, error) {
	host, _, _ := net.SplitHostPort(c.Listen) // checkAddresses has seen it
	listener, err := c.sockets.listen("api", c.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, nil, fmt.Errorf("%s listens on the API's address %s: give the API another with --listen", holder(c.Listen), c.Listen)
	}
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

// holder names the program that listens on the port of an address, if Linux shows it to this user.
func holder(address string) string {
	_, name, _ := net.SplitHostPort(address)
	port, _ := net.LookupPort("tcp", name)
	sockets := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(table)
		for line := range strings.Lines(string(text)) {
			// number, own address, other address, state (0A is LISTEN), …, inode
			if f := strings.Fields(line); len(f) > 9 && f[3] == "0A" && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				sockets["socket:["+f[9]+"]"] = true
			}
		}
	}
	open, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, descriptor := range open {
		if to, err := os.Readlink(descriptor); err == nil && sockets[to] {
			process := strings.Split(descriptor, "/")[2]
			program, _ := os.ReadFile("/proc/" + process + "/comm")
			return fmt.Sprintf("process %s (%q)", process, strings.TrimSpace(string(program)))
		}
	}
	return "another program (as root, ss -ltnp names it)"
}

// checkAddresses refuses addresses and names that the server cannot use, before
// anything is written.
func checkAddresses(c Config) error {
	for flag, address := range map[string]string{"--listen": c.Listen, "--registry-listen": c.RegistryListen} {
		if flag == "--registry-listen" && address == "" {
			continue // no registry
		}
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return fmt.Errorf("%s %q: want HOST:PORT: %w", flag, address, err)
		}
		if _, err := net.LookupPort("tcp", port); err != nil {
			return fmt.Errorf("%s: listen on %s: %w", flag, address, err)
		}
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

// unspecified reports whether a host means all addresses of the machine.
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
	Registry   string `json:"registry,omitempty"` // URL; empty means no registry
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

// sockets are the listeners that systemd opened and passed to this process, by the
// FileDescriptorName of their socket units: api, registry. Connections wait in them while
// the server restarts.
type sockets map[string]net.Listener

// takeSockets takes the listeners from the environment of the process. Their addresses
// replace those of the configuration, because names of certificates, and the choice of
// plain HTTP on loopback, follow from them; so they are checked again.
func takeSockets(c Config) (Config, error) {
	var err error
	if c.sockets, err = openSockets(activation.Files(true)); err != nil {
		c.sockets.close()
		return c, err
	}
	for name, address := range map[string]*string{"api": &c.Listen, "registry": &c.RegistryListen} {
		if l := c.sockets[name]; l != nil {
			c.Logger.Info("systemd passed a socket, which replaces the configured address", "name", name, "socket", l.Addr().String(), "configured", *address)
			*address = l.Addr().String()
		}
	}
	if err := checkAddresses(c); err != nil {
		c.sockets.close()
		return c, err
	}
	return c, nil
}

// openSockets makes listeners of inherited files. A name that is unknown or occurs twice
// is an error: clients would wait on a socket that the server does not serve.
func openSockets(files []*os.File) (sockets, error) {
	taken := sockets{}
	var errs []error
	for _, file := range files {
		name := file.Name()
		l, err := net.FileListener(file)
		errs = append(errs, file.Close()) // the listener has a copy
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("the socket %q of systemd: %w", name, err))
			continue
		case name != "api" && name != "registry":
			err = fmt.Errorf("systemd passed a socket named %q: FileDescriptorName= must be api or registry", name)
		case taken[name] != nil:
			err = fmt.Errorf("systemd passed two sockets named %q: want one ListenStream=", name)
		case l.Addr().Network() != "tcp":
			err = fmt.Errorf("systemd passed the socket %q at %s: want a TCP address", name, l.Addr())
		default:
			taken[name] = l
			continue
		}
		errs = append(errs, err, l.Close())
	}
	return taken, errors.Join(errs...)
}

// listen returns the socket of a name, or opens the address.
func (s sockets) listen(name, address string) (net.Listener, error) {
	if l := s[name]; l != nil {
		return l, nil
	}
	return net.Listen("tcp", address)
}

// close closes the listeners that never served.
func (s sockets) close() {
	for _, l := range s {
		_ = l.Close() // most have been closed
	}
}

// serviceManager tells systemd about the server: ready, alive, stopping. Without
// NOTIFY_SOCKET in the environment it does nothing.
type serviceManager struct {
	alive func(context.Context) error // fails if the server does not answer
	log   *slog.Logger
}

func (s *server) serviceManager() serviceManager {
	client := &http.Client{Transport: s.self.config().Transport}
	return serviceManager{log: s.config.Logger, alive: func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.self.config().Host+"/livez", nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(req)
		if err != nil {
			return err
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("/livez answers %s", answer.Status)
		}
		return nil
	}}
}

// run reports readiness at once, then a sign of life twice in each interval of
// WatchdogSec, until ctx ends. It reports life only if /livez answers, through all
// handlers of the API. /livez does not ask the database: a restart of the server does not
// bring a database back.
func (m serviceManager) run(ctx context.Context) error {
	m.notify(daemon.SdNotifyReady)
	defer m.notify(daemon.SdNotifyStopping)
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		m.log.Warn("the watchdog of systemd is off: WATCHDOG_USEC cannot be read", "error", err)
	}
	if interval <= 0 {
		<-ctx.Done()
		return nil
	}
	ticker := time.NewTicker(interval / 2)
	defer ticker.Stop()
	for {
		if err := m.beat(ctx, interval/2); err != nil && ctx.Err() == nil {
			m.log.Error("the server does not answer itself; systemd gets no sign of life", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// beat sends one sign of life if the server answers within the limit.
func (m serviceManager) beat(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := m.alive(ctx); err != nil {
		return err
	}
	m.notify(daemon.SdNotifyWatchdog)
	return nil
}

// notify sends a message. A failure is logged: systemd acts by its own time limits.
func (m serviceManager) notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		m.log.Warn("systemd could not be told", "message", state, "error", err)
	}
}
