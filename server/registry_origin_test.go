package server

import (
	"io"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRegistryRefusesWebPages: on loopback a browser may know the login, so requests from
// pages of another origin are refused and create no repository and no namespace.
// Requests of registry clients are served.
func TestRegistryRefusesWebPages(t *testing.T) {
	r := start(t, Config{Data: t.TempDir(), RegistryListen: "127.0.0.1:0", RegistryHosts: []string{"registry.example"}})
	url, client := r.registryURL(), r.loggedIn()
	send := func(method, path, host string, headers ...string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			req.Header.Set(name, value)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	for _, test := range []struct {
		host    string
		headers []string
	}{
		{"rebind.evil.example", nil},
		{"rebind.evil.example:5000", []string{"Sec-Fetch-Site: same-origin"}},
		{"", []string{"Origin: http://evil.example"}},
		{"", []string{"Origin: http://evil.example", "Content-Type: text/plain"}},
		{"", []string{"Sec-Fetch-Site: cross-site"}},
		{"", []string{"Impersonate-User: other"}},
	} {
		for _, to := range []string{"POST /v2/evil/a/blobs/uploads/", "GET /v2/_catalog", "DELETE /v2/a/manifests/latest", "OPTIONS /v2/"} {
			method, path, _ := strings.Cut(to, " ")
			if code, body := send(method, path, test.host, test.headers...); code != http.StatusForbidden || !strings.Contains(body, "DENIED") {
				t.Errorf("%s for %q with %v: %d %s", to, test.host, test.headers, code, body)
			}
		}
	}
	if _, err := r.client.CoreV1().Namespaces().Get(t.Context(), "evil", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the namespace of a refused push: %v", err)
	}
	for _, host := range []string{"", "localhost:5000", "localhost", "127.0.0.1:80", "127.0.1.1", "[::1]:5000", "registry.example"} {
		if code, body := send("POST", "/v2/good/a/blobs/uploads/", host); code != http.StatusAccepted {
			t.Errorf("a client that calls it %q: %d %s", host, code, body)
		}
	}
	r.stop()
}
