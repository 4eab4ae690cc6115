package server

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/exeunt/exeunt/access"
)

// TestCertificateNames: the certificate of a server on all addresses has each of them, the
// machine's name, and the configured names.
func TestCertificateNames(t *testing.T) {
	everywhere := certificateNames(Config{Listen: "0.0.0.0:6443", TLSNames: []string{"exeunt.example", "192.0.2.9", "127.0.0.1"}}, "0.0.0.0")
	want := []string{"localhost", "127.0.0.1", "::1", "exeunt.example", "192.0.2.9"}
	if name, err := os.Hostname(); err == nil {
		want = append(want, name)
	}
	for _, ip := range machineAddresses() {
		want = append(want, ip.String())
	}
	for _, name := range want {
		if !slices.Contains(everywhere, name) {
			t.Errorf("%s is not in %v", name, everywhere)
		}
	}
	if n := len(slices.Compact(slices.Sorted(slices.Values(everywhere)))); n != len(everywhere) {
		t.Errorf("a name twice: %v", everywhere)
	}
	here := certificateNames(Config{Listen: "127.0.0.1:6443", RegistryListen: "127.0.0.1:5000"}, "127.0.0.1")
	for _, ip := range machineAddresses() {
		if slices.Contains(here, ip.String()) {
			t.Errorf("a server on loopback is named %s", ip)
		}
	}
}

func TestCheckNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"exeunt.example": true, "EXEUNT.example": true, "*.exeunt.example": true, "192.0.2.1": true, "2001:db8::1": true,
		"": false, "exeunt.example:6443": false, "https://exeunt.example": false, "a b": false, "*": false,
	} {
		err := checkNames([]string{name})
		if (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
		if err != nil && !strings.Contains(err.Error(), "--tls-san") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestListenEverywhere: the kubeconfig of such a server works, with an address that is not
// loopback if the machine has one.
func TestListenEverywhere(t *testing.T) {
	c := Config{Data: t.TempDir(), Listen: "0.0.0.0:0", TLSNames: []string{"exeunt.example"}}.withDefaults()
	l, identity, err := listen(c)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	server := tls.NewListener(l, identity.TLSConfig())
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			_ = conn.(*tls.Conn).Handshake() // the client reports errors
			_ = conn.Close()
		}
	}()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig(c))
	if err != nil {
		t.Fatal(err)
	}
	if want := "https://" + clientAddress(c.Listen, l); config.Host != want {
		t.Errorf("the kubeconfig names %s, not %s", config.Host, want)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.CAData)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for address, name := range map[string]string{strings.TrimPrefix(config.Host, "https://"): "", "127.0.0.1:" + port: "exeunt.example"} {
		conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: roots, ServerName: name})
		if err != nil {
			t.Errorf("%s as %q: %v", address, name, err)
			continue
		}
		_ = conn.Close()
	}
}

// TestRenewal: the loop renews by the clock, and retries a kubeconfig that it could not write.
func TestRenewal(t *testing.T) {
	data := t.TempDir()
	now := time.Now()
	identity, err := access.Open(filepath.Join(data, "pki"), []string{"localhost"}, now)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(data, "away", "kubeconfig")
	r := &renewal{identity: identity, kubeconfig: path, url: "https://localhost:1", now: func() time.Time { return now }, log: slog.New(slog.DiscardHandler)}
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := identity.WriteKubeconfig(path, r.url, now); err != nil {
		t.Fatal(err)
	}
	serving := func() string { return fileOf(t, filepath.Join(data, "pki", "serving.crt")) }
	before, certificate := fileOf(t, path), serving()
	now = now.Add(300 * 24 * time.Hour)
	if err := r.renewOnce(); err != nil || fileOf(t, path) != before || serving() != certificate {
		t.Errorf("renewed two months before the end: %v", err)
	}
	now = now.Add(40 * 24 * time.Hour)
	if err := os.Rename(filepath.Dir(path), filepath.Join(data, "aside")); err != nil {
		t.Fatal(err)
	}
	if err := r.renewOnce(); err == nil {
		t.Error("a kubeconfig was written to a path that cannot exist")
	}
	if err := os.Rename(filepath.Join(data, "aside"), filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	if err := r.renewOnce(); err != nil || fileOf(t, path) == before {
		t.Errorf("the kubeconfig was not written by the retry: %v", err)
	}
	if serving() == certificate {
		t.Error("the serving certificate was not renewed")
	}
	again := fileOf(t, path)
	if err := r.renewOnce(); err != nil || fileOf(t, path) != again {
		t.Errorf("the kubeconfig was written without need: %v", err)
	}
}

func fileOf(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestDataDirectoryIsClosed: the permissions of other users are removed, and the log says so.
func TestDataDirectoryIsClosed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // whatever the umask is
		t.Fatal(err)
	}
	var log bytes.Buffer
	for range 2 {
		unlock, err := lockData(dir, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		unlock()
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("the data directory is %v (%v)", info.Mode(), err)
		}
	}
	if n := strings.Count(log.String(), "was open to other users"); n != 1 {
		t.Errorf("the log has the line %d times:\n%s", n, log.String())
	}
}

// TestInvalidAddressesWriteNothing: a server that cannot use its flags leaves no data
// directory, key or database behind.
func TestInvalidAddressesWriteNothing(t *testing.T) {
	for _, c := range []Config{{Listen: "nonsense"}, {RegistryListen: "5000"}, {TLSNames: []string{"host:1"}}} {
		c.Data = filepath.Join(t.TempDir(), "data")
		if err := Run(t.Context(), c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
		if _, err := os.Stat(c.Data); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q, %q, %q: the data directory was created: %v", c.Listen, c.RegistryListen, c.TLSNames, err)
		}
	}
}
