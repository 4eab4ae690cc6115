package server

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/exeunt/exeunt/access"
)

// listen opens the listener, makes certificates for where it listens, and
// writes the administrator's kubeconfig: all of it is there once the server
// answers.
func listen(c Config) (net.Listener, *access.Identity, error) {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return nil, nil, fmt.Errorf("--listen %q: want HOST:PORT: %w", c.Listen, err)
	}
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, nil, fmt.Errorf("listen on %s: %w", c.Listen, err)
	}
	identity, err := access.Open(filepath.Join(c.Data, "pki"), append(hostNames(host), registryNames(c)...), time.Now())
	if err != nil {
		return nil, nil, errors.Join(err, listener.Close())
	}
	if err := identity.WriteKubeconfig(filepath.Join(c.Data, "kubeconfig"), serverURL(host, listener)); err != nil {
		return nil, nil, errors.Join(err, listener.Close())
	}
	return listener, identity, nil
}

// hostNames are the names that clients may use for this server.
func hostNames(host string) []string {
	names := []string{"localhost", "127.0.0.1", "::1"}
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified() && !ip.IsLoopback()) && host != "localhost" {
		names = append(names, host)
	}
	if name, err := os.Hostname(); err == nil && name != "" {
		names = append(names, name)
	}
	return names
}

// serverURL is the address in the kubeconfig; a server that listens everywhere
// is reached on loopback by those who can read that file.
func serverURL(host string, l net.Listener) string {
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "https://" + net.JoinHostPort(host, port)
}

func announce(c Config, address, registry string) {
	kubeconfig := filepath.Join(c.Data, "kubeconfig")
	if abs, err := filepath.Abs(kubeconfig); err == nil {
		kubeconfig = abs
	}
	fmt.Fprintf(c.Out, "Exeunt %s serves the Kubernetes API at https://%s\n\n  export KUBECONFIG=%s\n  kubectl get namespaces\n\n", c.Version, address, kubeconfig)
	if registry != "" {
		fmt.Fprintf(c.Out, "The OCI registry is at %s\n\n", registry)
	}
}
