package server

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// registryURL returns the registry's URL from the server's output.
func (r *running) registryURL() string {
	r.t.Helper()
	var found []string
	dbtest.Await(r.t, "the server announces its registry", func() bool {
		found = regexp.MustCompile(`OCI registry is at (\S+)`).FindStringSubmatch(r.out.String())
		return found != nil
	})
	return found[1]
}

// loggedIn is an HTTP client with the login that the server printed.
func (r *running) loggedIn() *http.Client {
	r.t.Helper()
	token, err := os.ReadFile(filepath.Join(r.data, tokenFile))
	if err != nil {
		r.t.Fatal(err)
	}
	return &http.Client{Transport: withLogin(strings.TrimSpace(string(token)))}
}

// withLogin sends a password with every request.
type withLogin string

func (token withLogin) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.SetBasicAuth(localUser, string(token))
	return http.DefaultTransport.RoundTrip(req)
}

func statusOf(t *testing.T, client *http.Client, method, url, body string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode
}

// TestRegistryOnLoopback: plain HTTP for clients that log in, as the server's first output
// says; the login and a pushed image survive a restart.
func TestRegistryOnLoopback(t *testing.T) {
	data := t.TempDir()
	r := start(t, Config{Data: data, RegistryListen: "127.0.0.1:0"})
	url := r.registryURL()
	if !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Errorf("the registry is at %s", url)
	}
	file := filepath.Join(data, tokenFile)
	if want := "docker login -u " + localUser + " --password-stdin " + strings.TrimPrefix(url, "http://") + " <" + file; !strings.Contains(r.out.String(), want) {
		t.Errorf("the server says\n%s\nwant %s", r.out, want)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the token's file: %v, %v; want mode 0600", info, err)
	}
	client := r.loggedIn()
	d := digest.FromString("content").String()
	push := "/v2/a/blobs/uploads/?digest=" + d
	for _, c := range []struct {
		who    string
		client *http.Client
		want   int
	}{
		{"a stranger", http.DefaultClient, 401},
		{"a wrong password", &http.Client{Transport: withLogin("wrong")}, 401},
		{"the administrator", client, 201},
	} {
		if status := statusOf(t, c.client, "POST", url+push, "content"); status != c.want {
			t.Errorf("push by %s: %d, want %d", c.who, status, c.want)
		}
	}
	// It is the registry's alone.
	token, _ := os.ReadFile(file)
	api, err := rest.HTTPClientFor(&rest.Config{BearerToken: strings.TrimSpace(string(token)), TLSClientConfig: rest.TLSClientConfig{CAData: r.http.CAData}})
	if err != nil {
		t.Fatal(err)
	}
	if status := statusOf(t, api, "GET", r.http.Host+"/api/v1/namespaces", ""); status != 401 {
		t.Errorf("the registry's token at the API: %d", status)
	}
	r.stop()
	r = start(t, Config{Data: data, RegistryListen: "localhost:0"})
	if status := statusOf(t, client, "GET", r.registryURL()+"/v2/a/blobs/"+d, ""); status != 200 {
		t.Errorf("pull after a restart: %d", status)
	}
	r.stop()
}

// TestRegistryElsewhere: TLS, only for clients with a certificate.
func TestRegistryElsewhere(t *testing.T) {
	r := start(t, Config{Data: t.TempDir(), RegistryListen: "0.0.0.0:0"})
	url := r.registryURL()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(url, "https://"))
	if err != nil {
		t.Fatalf("the registry is at %s: %v", url, err)
	}
	host := "127.0.0.1:" + port
	known, err := rest.HTTPClientFor(r.http)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := rest.HTTPClientFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: r.http.CAData}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		who    string
		client *http.Client
		url    string
		want   int
	}{
		{"a known caller", known, "https://" + host + "/v2/", 200},
		{"a stranger", stranger, "https://" + host + "/v2/", 401},
		{"a stranger who asks for content", stranger, "https://" + host + "/v2/_catalog", 401},
		{"plain HTTP", http.DefaultClient, "http://" + host + "/v2/", 400},
	} {
		if status := statusOf(t, c.client, "GET", c.url, ""); status != c.want {
			t.Errorf("%s: %d, not %d", c.who, status, c.want)
		}
	}
	r.stop()
}

// TestRegistryAnonymous: with the setting, a client without credentials may do everything
// on loopback, and the server does not start elsewhere.
func TestRegistryAnonymous(t *testing.T) {
	var log bytes.Buffer
	r := start(t, Config{Data: t.TempDir(), RegistryListen: "127.0.0.1:0", RegistryAnonymous: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if status := statusOf(t, http.DefaultClient, "GET", r.registryURL()+"/v2/_catalog", ""); status != 200 {
		t.Errorf("a catalog without credentials: %d", status)
	}
	r.stop()
	if !strings.Contains(log.String(), "every process on this machine can push and delete") {
		t.Errorf("no warning in the log:\n%s", log.String())
	}
	err := Run(t.Context(), Config{Data: t.TempDir(), RegistryListen: "0.0.0.0:0", RegistryAnonymous: true, Started: func(Addresses) {}, Logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "listen on a loopback address") {
		t.Errorf("on all addresses: %v", err)
	}
}

// TestNoPlainHTTPElsewhere: a name that says loopback and means another address is refused.
func TestNoPlainHTTPElsewhere(t *testing.T) {
	listener, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	s := &registryServer{config: Config{RegistryListen: "localhost:5000"}, listener: listener, plain: true}
	if err := s.checkPlain(); err == nil || !strings.Contains(err.Error(), "so that the registry serves TLS") {
		t.Errorf("plain HTTP on %s: %v", listener.Addr(), err)
	}
}

func TestRegistryOff(t *testing.T) {
	data := t.TempDir()
	r := start(t, Config{Data: data})
	r.stop()
	if strings.Contains(r.out.String(), "registry") {
		t.Errorf("a server without a registry says:\n%s", r.out)
	}
	if _, err := os.Stat(filepath.Join(data, "blobs")); err == nil {
		t.Error("a server without a registry has made a place for blobs")
	}
}

func TestRegistryRefusesToListen(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for listen, want := range map[string]string{
		taken.Addr().String(): "listens on the registry's address " + taken.Addr().String() + ": give the registry another with --registry-listen",
		"5000":                "--registry-listen \"5000\": want HOST:PORT",
		"192.0.2.1:5000":      "listen for the registry on 192.0.2.1:5000",
	} {
		err := Run(t.Context(), Config{
			Data: t.TempDir(), Listen: "127.0.0.1:0", RegistryListen: listen, Started: func(Addresses) {}, Logger: slog.New(slog.DiscardHandler),
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", listen, err, want)
		}
	}
}

// TestLostBlobStore: a start whose blob directory is not the one of its database is
// refused with the remedy, and gives the directory no id.
func TestLostBlobStore(t *testing.T) {
	data, empty := t.TempDir(), t.TempDir()
	start(t, Config{Data: data, RegistryListen: "127.0.0.1:0"}).stop()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := Run(ctx, Config{
		Data: data, Listen: "127.0.0.1:0", RegistryListen: "127.0.0.1:0", RegistryStorage: empty, Logger: slog.New(slog.DiscardHandler),
		Started: func(Addresses) {
			t.Error("the server serves another blob directory")
			cancel()
		},
	})
	if err == nil || !strings.Contains(err.Error(), "this blob store is not the one of this database") || !strings.Contains(err.Error(), "--registry-accept-storage") {
		t.Errorf("another blob directory: %v; want a refusal that names the remedy", err)
	}
	if _, err := os.Stat(filepath.Join(empty, ".exeunt-id")); err == nil {
		t.Error("the refused directory got an id")
	}
}

// TestNoRegistry: a server without a registry says so to clients of its control paths.
func TestNoRegistry(t *testing.T) {
	t.Parallel()
	answer := httptest.NewRecorder()
	noRegistry(answer, httptest.NewRequest(http.MethodGet, "/exeunt/registry/gc", nil))
	var status metav1.Status
	if err := json.Unmarshal(answer.Body.Bytes(), &status); err != nil || answer.Code != http.StatusNotFound ||
		status.Reason != metav1.StatusReasonNotFound || !strings.Contains(status.Message, "no registry") {
		t.Errorf("got %d %+v, %v", answer.Code, status, err)
	}
}
