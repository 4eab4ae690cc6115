package api

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/access/accesstest"
	"github.com/exeunt/exeunt/store"
)

// TestEveryRouteNeedsRights sends a request to every route of every kind, with every
// method. Without credentials the answer is 401; for a user without roles it is 403, or
// the answer that an administrator gets for a route that does not exist. The routes come
// from the registry and the endpoints, so new kinds and subresources are included.
func TestEveryRouteNeedsRights(t *testing.T) {
	w := newWorld(t, store.Options{})
	paths := []string{"/", "/api", "/api/v1", "/apis", "/metrics", "/openapi/v2", "/openapi/v3", "/debug/pprof/", "/debug/pprof/profile", "/exeunt/gc", "/exeunt/mesh/tokens", "/openid/v1/jwks", "/.well-known/openid-configuration"}
	for _, k := range w.api.Kinds.Snapshot().Kinds {
		for _, v := range k.Versions {
			e, err := w.api.endpoint(v)
			if err != nil {
				t.Fatal(err)
			}
			root := "/apis/" + v.GVK.Group + "/" + v.GVK.Version
			if v.GVK.Group == "" {
				root = "/api/" + v.GVK.Version
			}
			collection := root + "/" + k.Plural
			if k.Namespaced {
				collection = root + "/namespaces/shop/" + k.Plural
				paths = append(paths, root+"/"+k.Plural)
			}
			for subresource := range e.verbs {
				paths = append(paths, collection, strings.TrimSuffix(collection+"/x/"+subresource, "/"))
			}
		}
	}
	// Every authenticated client may use discovery and ask about itself.
	open := func(path string) bool {
		for _, prefix := range []string{"/api", "/apis", "/api/v1", "/openapi/"} {
			if path == prefix || prefix == "/openapi/" && strings.HasPrefix(path, prefix) {
				return true
			}
		}
		return strings.Contains(path, "/selfsubject")
	}
	for _, path := range paths {
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "BREW"} {
			if r := w.answer(httptest.NewRequest(method, path, strings.NewReader("{}"))); r.code != http.StatusUnauthorized {
				t.Errorf("%s %s without credentials: %d", method, path, r.code)
			}
			slashed := method == "DELETE" && strings.HasSuffix(path, "/") // 404: a name is missing
			if r := w.as("eve", nil, method, path, "{}"); r.code != http.StatusForbidden && !open(path) && !slashed {
				t.Errorf("%s %s without roles: %d %s", method, path, r.code, r.body)
			}
		}
	}
}

// TestPathTricks: authorizer and router read a path in the same way, or refuse it. The
// user may read ConfigMaps of shop, probes, and nothing else.
func TestPathTricks(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.api = New(Config{Store: w.api.Store, Kinds: w.api.Kinds, Access: accesstest.Control("vi view shop"), Admission: accesstest.NoAdmission{}, OpenAPI: w.api.OpenAPI, Metrics: w.api.Metrics, Logger: w.api.Logger})
	t.Cleanup(func() { w.api.Close(t.Context()) })
	w.want(http.StatusCreated, "POST", "/api/v1/namespaces/shop/secrets", `{"metadata":{"name":"s"},"stringData":{"k":"hunter2"}}`)
	for _, path := range []string{
		"/api/v1/namespaces/shop/secrets/s", "/api/v1/namespaces/shop//secrets/s", "/api/v1//namespaces/shop/secrets/s", "//api/v1/namespaces/shop/secrets/s",
		"/api/v1/namespaces/shop/configmaps/../secrets/s", "/api/v1/namespaces/shop/configmaps/..%2Fsecrets%2Fs", "/api/v1/namespaces/shop%2Fsecrets/s",
		"/api/v1/namespaces/shop/./secrets/s", "/healthz/../api/v1/namespaces/shop/secrets/s", "/healthz/..%2f..%2fapi/v1/namespaces/shop/secrets/s",
		"/API/v1/namespaces/shop/secrets/s", "/api/V1/namespaces/shop/secrets/s", "/api/v1/Namespaces/shop/Secrets/s", "/api/v1/namespaces/shop/SECRETS/s",
		"/api/v1/namespaces/shop/secrets/s/", "/api/v1/watch/namespaces/shop/secrets/s", "/api/v1/watch/namespaces/shop/secrets", "/api/v1/namespaces/shop/secrets?fieldSelector=metadata.name%3Ds",
		"/apis//v1/namespaces/shop/secrets/s", "/apis/v1/namespaces/shop/secrets/s", "/api/v1/namespaces/shop/secrets/s%00", "/api/v1/namespaces/shop/secrets;x=y/s",
		"/livez/..;/metrics", "/metrics", "/metrics/", "/metrics%2f", "/readyz/..%2fmetrics", "/version/../metrics",
	} {
		for _, user := range []string{"vi", ""} {
			u, err := url.ParseRequestURI(path)
			if err != nil {
				t.Fatal(err)
			}
			req := httptest.NewRequest("GET", "/", nil)
			req.URL = u
			if user != "" {
				accesstest.As(req, user)
			}
			r := w.answer(req)
			if strings.Contains(r.body, "hunter2") || strings.Contains(r.body, "aHVudGVyMg") || r.code < 400 {
				t.Errorf("%q as %q: %d %s", path, user, r.code, r.body)
			}
		}
	}
}
