package access

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// serve listens as the identity does, and answers who it takes the caller for.
func serve(t *testing.T, id *Identity) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		caller, ok := (&Authenticator{}).Caller(req)
		if !ok {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_ = json.NewEncoder(w).Encode(user.DefaultInfo{Name: caller.GetName(), Groups: caller.GetGroups()})
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = id.TLSConfig()
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// client reads a kubeconfig as every client does.
func client(t *testing.T, kubeconfig string) (*rest.Config, *http.Client) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.Timeout = 10 * time.Second
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return config, c
}

func TestKubeconfigWorks(t *testing.T) {
	dir := t.TempDir()
	id := open(t, dir, hosts, time.Now())
	server := serve(t, id)
	path := filepath.Join(dir, "kubeconfig")
	if err := id.WriteKubeconfig(path, server.URL); err != nil {
		t.Fatal(err)
	}
	config, c := client(t, path)
	if config.Host != server.URL {
		t.Errorf("server is %s, want %s", config.Host, server.URL)
	}
	answer, err := c.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var caller user.DefaultInfo
	if err := json.NewDecoder(answer.Body).Decode(&caller); err != nil {
		t.Fatal(err)
	}
	if caller.Name != "exeunt-admin" || !slices.Equal(caller.Groups, []string{"system:masters", "system:authenticated"}) {
		t.Errorf("caller is %+v", caller)
	}

	// Written again, it holds the same credentials: a copy stays good.
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := open(t, dir, hosts, time.Now()).WriteKubeconfig(path, server.URL); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("the kubeconfig changed (%v)", err)
	}
}

func TestKubeconfigTakesEveryAddress(t *testing.T) {
	dir := t.TempDir()
	id := open(t, dir, hosts, time.Now())
	for _, address := range []string{"https://127.0.0.1:6443", "https://[::1]:6443", "https://db.example:443"} {
		path := filepath.Join(dir, "kubeconfig")
		if err := id.WriteKubeconfig(path, address); err != nil {
			t.Fatal(err)
		}
		if config, _ := client(t, path); config.Host != address {
			t.Errorf("server is %q, want %q", config.Host, address)
		}
	}
}

func TestKubeconfigWithDamagedKeyIsIssuedAnew(t *testing.T) {
	dir := t.TempDir()
	id := open(t, dir, hosts, time.Now())
	path := filepath.Join(dir, "kubeconfig")
	if err := id.WriteKubeconfig(path, "https://localhost:1"); err != nil {
		t.Fatal(err)
	}
	replace("admin.key", []byte("x"))(t, dir)
	if err := id.WriteKubeconfig(path, "https://localhost:1"); err != nil {
		t.Fatal(err)
	}
	client(t, path) // fails when the key is not the certificate's
}

// TestForeignCertificateIsNoCaller: one that another authority signed ends the
// handshake, whatever name it bears.
func TestForeignCertificateIsNoCaller(t *testing.T) {
	id := open(t, t.TempDir(), hosts, time.Now())
	server := serve(t, id)
	foreign := t.TempDir()
	stranger := open(t, foreign, hosts, time.Now())
	if err := stranger.WriteKubeconfig(filepath.Join(foreign, "kubeconfig"), server.URL); err != nil {
		t.Fatal(err)
	}
	cert, err := tls.LoadX509KeyPair(filepath.Join(foreign, "admin.crt"), filepath.Join(foreign, "admin.key"))
	if err != nil {
		t.Fatal(err)
	}
	if code, err := get(server.URL, id, &cert); err == nil {
		t.Errorf("the stranger was answered with %d", code)
	}
	// A serving certificate of our own is no client's.
	if code, err := get(server.URL, id, &id.Serving); err == nil {
		t.Errorf("a serving certificate was answered with %d", code)
	}
	if code, err := get(server.URL, id, nil); err != nil || code != http.StatusUnauthorized {
		t.Errorf("without a certificate: %d, %v; want 401", code, err)
	}
}

func get(url string, trust *Identity, cert *tls.Certificate) (int, error) {
	roots := x509.NewCertPool()
	roots.AddCert(trust.Authority)
	config := &tls.Config{RootCAs: roots}
	if cert != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Get(url)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}

func TestCallerNeedsAName(t *testing.T) {
	for name, state := range map[string]*tls.ConnectionState{
		"no TLS":            nil,
		"no certificate":    {},
		"not verified":      {PeerCertificates: []*x509.Certificate{{}}},
		"verified, no name": {VerifiedChains: [][]*x509.Certificate{{{}}}},
	} {
		t.Run(name, func(t *testing.T) {
			if caller, ok := (&Authenticator{}).Caller(&http.Request{TLS: state}); ok {
				t.Errorf("taken for %v", caller)
			}
		})
	}
}
