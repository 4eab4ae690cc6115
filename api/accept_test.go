package api

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/exeunt/exeunt/store"
)

func TestCheckAccept(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]bool{
		"":                 true,
		"application/json": true,
		"application/vnd.kubernetes.protobuf,application/json": true,
		"application/json;as=Table;v=v1;g=meta.k8s.io":         true,
		"Application/YAML": true,
		"text/html, application/xhtml+xml, */*;q=0.8": true,
		"application/*":               true,
		"text/plain":                  false,
		"text/html,text/plain":        false,
		"application/jsonish":         false,
		"application/json-patch+json": false,
		"text/plain;a=application/json, application/vnd.kubernetes.protobuf-like": false,
	} {
		req := httptest.NewRequest("GET", "/api/v1", nil)
		req.Header.Set("Accept", accept)
		if err := checkAccept(req, false); (err == nil) != want {
			t.Errorf("%q: %v", accept, err)
		}
	}
	req := httptest.NewRequest("GET", "/api/v1", nil)
	req.Header.Set("Accept", "text/plain")
	if err := checkAccept(req, true); err == nil || !strings.HasSuffix(err.Error(), "application/vnd.kubernetes.protobuf;stream=watch") {
		t.Errorf("a watch: %v", err)
	}
}

func TestTimeLimit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		verb, query string
		want        time.Duration
		refused     bool
	}{
		{"get", "", requestTimeout, false},
		{"list", "?timeout=5s", 5 * time.Second, false},
		{"list", "?timeout=0s", requestTimeout, false},
		{"list", "?timeout=5h", requestTimeout, false},
		{"list", "?timeout=", requestTimeout, false},
		{"list", "?timeout=x", 0, true},
		{"watch", "?timeout=x", 0, false},
		{"watch", "", 0, false},
		{"deletecollection", "", 0, false},
		{"deletecollection", "?timeout=5h", 5 * time.Hour, false},
	} {
		got, err := timeLimit(httptest.NewRequest("GET", "/api/v1/pods"+tt.query, nil), &genericrequest.RequestInfo{Verb: tt.verb})
		if got != tt.want || apierrors.IsBadRequest(err) != tt.refused {
			t.Errorf("%s%s: %v, %v", tt.verb, tt.query, got, err)
		}
	}
}

// TestRefusalsInKubernetesWords compares the texts of refusals with those of a kube-apiserver 1.37.
func TestRefusalsInKubernetesWords(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.want(201, "POST", configMaps, `{"metadata":{"name":"a"}}`)
	for _, tt := range []struct {
		method, url, body, accept string
		code                      int
		message                   string // "" means a text, not a Status
	}{
		{"GET", configMaps + "/a", "", "text/plain", 406,
			"406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf"},
		{"PATCH", configMaps + "/a", "{}", "", 415, "415: Unsupported Media Type"},
		{"GET", configMaps + "?timeout=x", "", "", 400, `invalid timeout specified in the request URL - time: invalid duration "x"`},
		{"DELETE", configMaps + "/a", `{"preconditions":{"resourceVersion":"1"}}`, "", 409,
			`Operation cannot be fulfilled on ConfigMap "a": the ResourceVersion in the precondition (1) does not match the ResourceVersion in record (`},
		{"GET", "/apis/nothing.example.com", "", "", 404, ""},
		{"GET", "/apis/nothing.example.com/v1/things", "", "", 404, ""},
		{"GET", "/apis/apps/v1/things", "", "", 404, "the server could not find the requested resource"},
		{"GET", "/api/v1/configmaps/a", "", "", 404, "the server could not find the requested resource"},
		{"PATCH", "/api/v1/configmaps/a", "{}", "", 404, "the server could not find the requested resource"},
		{"DELETE", "/api/v1/configmaps/a", "", "", 404, "the server could not find the requested resource"},
		{"POST", "/api/v1/configmaps", "{}", "", 405, "the server does not allow this method on the requested resource"},
	} {
		r := w.send(tt.method, tt.url, tt.body, "Accept: "+tt.accept)
		if tt.message == "" {
			if r.code != tt.code || r.body != "404 page not found\n" {
				t.Errorf("%s %s: %d %q", tt.method, tt.url, r.code, r.body)
			}
			continue
		}
		if r.code != tt.code || !strings.HasPrefix(r.get("message"), tt.message) {
			t.Errorf("%s %s: %d %s", tt.method, tt.url, r.code, r.body)
		}
	}
}
