package access

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/exeunt/exeunt/access/directory"
	"github.com/exeunt/exeunt/access/rbac"
)

// control knows no roles.
func control() *Control { return NewControl(directory.Of(rbac.Objects{}), Config{}) }

// serve listens with the identity, and answers with the client's name and groups.
func serve(t *testing.T, id *Identity) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		found, ok := control().Authenticate(req)
		if !ok {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_ = json.NewEncoder(w).Encode(user.DefaultInfo{Name: found.GetName(), Groups: found.GetGroups()})
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	config := id.TLSConfig() // directly: httptest would add its own certificate
	server.TLS = &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if config.GetConfigForClient != nil {
			return config.GetConfigForClient(hello)
		}
		return config, nil
	}}
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
	config.Timeout = time.Minute
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
	if err := id.WriteKubeconfig(path, server.URL, time.Now()); err != nil {
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
	var found user.DefaultInfo
	if err := json.NewDecoder(answer.Body).Decode(&found); err != nil {
		t.Fatal(err)
	}
	if found.Name != "exeunt-admin" || !slices.Equal(found.Groups, []string{"system:masters", "system:authenticated"}) {
		t.Errorf("client is %+v", found)
	}

	// A second write has the same credentials: copies of the file stay valid.
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := open(t, dir, hosts, time.Now()).WriteKubeconfig(path, server.URL, time.Now()); err != nil {
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
		if err := id.WriteKubeconfig(path, address, time.Now()); err != nil {
			t.Fatal(err)
		}
		if config, _ := client(t, path); config.Host != address {
			t.Errorf("server is %q, want %q", config.Host, address)
		}
	}
}

func TestKubeconfigWithDamagedKeyIsReplaced(t *testing.T) {
	dir := t.TempDir()
	id := open(t, dir, hosts, time.Now())
	path := filepath.Join(dir, "kubeconfig")
	if err := id.WriteKubeconfig(path, "https://localhost:1", time.Now()); err != nil {
		t.Fatal(err)
	}
	replace("admin.key", []byte("x"))(t, dir)
	if err := id.WriteKubeconfig(path, "https://localhost:1", time.Now()); err != nil {
		t.Fatal(err)
	}
	client(t, path) // fails if key and certificate do not match
}

// TestForeignCertificateIsRefused: a certificate of another authority fails the handshake,
// whatever name it has.
func TestForeignCertificateIsRefused(t *testing.T) {
	id := open(t, t.TempDir(), hosts, time.Now())
	server := serve(t, id)
	foreign := t.TempDir()
	stranger := open(t, foreign, hosts, time.Now())
	if err := stranger.WriteKubeconfig(filepath.Join(foreign, "kubeconfig"), server.URL, time.Now()); err != nil {
		t.Fatal(err)
	}
	cert, err := tls.LoadX509KeyPair(filepath.Join(foreign, "admin.crt"), filepath.Join(foreign, "admin.key"))
	if err != nil {
		t.Fatal(err)
	}
	if code, err := get(server.URL, id, &cert); err == nil {
		t.Errorf("the stranger was answered with %d", code)
	}
	// Our own serving certificate does not identify a client.
	if code, err := get(server.URL, id, id.serving.Load()); err == nil {
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
	answer, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Get(url)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}

func TestClientNeedsAName(t *testing.T) {
	for name, state := range map[string]*tls.ConnectionState{
		"no TLS":            nil,
		"no certificate":    {},
		"not verified":      {PeerCertificates: []*x509.Certificate{{}}},
		"verified, no name": {VerifiedChains: [][]*x509.Certificate{{{NotAfter: time.Now().Add(time.Hour)}}}},
		"expired":           {VerifiedChains: [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: "bob"}, NotAfter: time.Now().Add(-time.Second)}}}},
	} {
		t.Run(name, func(t *testing.T) {
			if found, ok := control().Authenticate(&http.Request{TLS: state, URL: &url.URL{Path: "/api"}, Header: http.Header{}}); ok {
				t.Errorf("taken for %v", found)
			}
		})
	}
}

// TestRenewWhileServing: a server that runs for years always has a valid certificate, and its
// kubeconfig is replaced before its certificate expires.
func TestRenewWhileServing(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	id := open(t, dir, hosts, now)
	server := serve(t, id)
	path := filepath.Join(dir, "kubeconfig")
	if err := id.WriteKubeconfig(path, server.URL, now); err != nil {
		t.Fatal(err)
	}
	shown := func() *x509.Certificate {
		t.Helper()
		roots := x509.NewCertPool()
		roots.AddCert(id.Authority)
		conn, err := tls.Dial("tcp", server.Listener.Addr().String(), &tls.Config{RootCAs: roots, Time: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0]
	}
	renew := func() (serving, admin bool) {
		t.Helper()
		serving, err := id.Renew(now)
		if err != nil {
			t.Fatal(err)
		}
		if admin, err = id.RenewKubeconfig(path, server.URL, now); err != nil {
			t.Fatal(err)
		}
		return serving, admin
	}
	first, config := shown(), read(t, path)
	if serving, admin := renew(); serving || admin || !shown().Equal(first) {
		t.Error("a new certificate was renewed")
	}
	for range 3 {
		now = now.Add(certLife - renewBefore + time.Hour)
		if serving, admin := renew(); !serving || !admin {
			t.Fatalf("not renewed: serving %v, administrator %v", serving, admin)
		}
		next, nextConfig := shown(), read(t, path)
		if next.Equal(first) || nextConfig == config {
			t.Error("the old certificate is in use")
		}
		client(t, path) // fails if key and certificate do not match
		first, config = next, nextConfig
	}
	// A kubeconfig that its owner has changed stays as long as its certificate.
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, admin := renew(); admin || read(t, path) != "mine" {
		t.Error("the kubeconfig was replaced without need")
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestWildcard: the certificate contains a wildcard name, and it is not issued again at each
// start.
func TestWildcard(t *testing.T) {
	dir := t.TempDir()
	names := append([]string{"*.exeunt.example"}, hosts...)
	first := open(t, dir, names, start)
	if err := leaf(t, first).VerifyHostname("a.exeunt.example"); err != nil {
		t.Error(err)
	}
	if !leaf(t, first).Equal(leaf(t, open(t, dir, names, start))) {
		t.Error("the certificate was issued again")
	}
}

// TestAnonymous: a client without credentials reads the public paths; one with invalid credentials is refused there too.
func TestAnonymous(t *testing.T) {
	for _, test := range []struct {
		method, path, authorization string
		want                        bool
	}{
		{"GET", "/version", "", true}, {"HEAD", "/readyz/ping", "", true}, {"POST", "/version", "", false},
		{"GET", "/readyzz", "", false}, {"GET", "/api", "", false}, {"GET", "/version", "Bearer x", false}, {"GET", "/version", "x", false},
	} {
		req := httptest.NewRequest(test.method, test.path, nil)
		if test.authorization != "" {
			req.Header.Set("Authorization", test.authorization)
		}
		found, ok := control().Authenticate(req)
		if ok != test.want || ok && (found.GetName() != user.Anonymous || !slices.Equal(found.GetGroups(), []string{user.AllUnauthenticated})) {
			t.Errorf("%+v: %v, %v", test, found, ok)
		}
	}
}
