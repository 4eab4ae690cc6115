package api

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/exeunt/exeunt/api/discovery"
	"github.com/exeunt/exeunt/store"
)

const asAggregated = "Accept: " + discovery.AggregatedType + ",application/json"

func TestAggregatedDiscovery(t *testing.T) {
	w := newWorld(t, store.Options{})
	first := w.want(http.StatusOK, "GET", "/apis", "", asAggregated)
	if first.get("kind") != "APIGroupDiscoveryList" || first.get("apiVersion") != "apidiscovery.k8s.io/v2" {
		t.Errorf("the answer is %.200s", first.body)
	}
	if got := first.header.Get("Content-Type"); got != discovery.AggregatedType {
		t.Errorf("Content-Type is %q", got)
	}
	etag := first.header.Get("ETag")
	same := w.want(http.StatusNotModified, "GET", "/apis", "", asAggregated, "If-None-Match: "+etag)
	if same.body != "" || etag == "" || same.header.Get("ETag") != etag {
		t.Errorf("304 has ETag %q and body %q", same.header.Get("ETag"), same.body)
	}
	w.want(http.StatusOK, "GET", "/apis", "", asAggregated, `If-None-Match: "OTHER"`)

	deployments := gjson.Get(first.body, `items.#(metadata.name=="apps").versions.0.resources.#(resource=="deployments")`)
	for path, want := range map[string]string{
		"scope": "Namespaced", "singularResource": "deployment", "shortNames.0": "deploy", "categories.0": "all",
		"responseKind.kind": "Deployment", "responseKind.group": "",
		`subresources.#(subresource=="scale").responseKind.group`: "autoscaling",
		`subresources.#(subresource=="status").verbs.#`:           "3",
		"verbs.#": "8",
	} {
		if got := deployments.Get(path).String(); got != want {
			t.Errorf("deployments: %s is %q, want %q", path, got, want)
		}
	}

	// A new kind changes the document.
	w.define()
	second := w.want(http.StatusOK, "GET", "/apis", "", asAggregated, "If-None-Match: "+etag)
	if second.header.Get("ETag") == etag || !gjson.Get(second.body, `items.#(metadata.name=="test.dev")`).Exists() {
		t.Error("the new group is not announced")
	}
	core := w.want(http.StatusOK, "GET", "/api", "", asAggregated)
	if core.get("items.#") != "1" || core.get("items.0.metadata.name") != "" {
		t.Errorf("/api lists more than the core group: %.200s", core.body)
	}
	finalize := gjson.Get(core.body, `items.0.versions.0.resources.#(resource=="namespaces").subresources.#(subresource=="finalize").verbs`)
	if finalize.Raw != `["update"]` {
		t.Errorf("namespaces/finalize: %s", finalize.Raw)
	}
}

func TestPlainDiscovery(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.define()
	for _, test := range []struct {
		path string
		want map[string]string
	}{
		{"/api", map[string]string{"kind": "APIVersions", "versions.0": "v1"}},
		{"/apis", map[string]string{"kind": "APIGroupList", `groups.#(name=="apps").preferredVersion.groupVersion`: "apps/v1"}},
		{"/apis/", map[string]string{"kind": "APIGroupList"}},
		{"/apis/apps", map[string]string{"kind": "APIGroup", "name": "apps", "preferredVersion.version": "v1"}},
		{"/api/v1", map[string]string{"kind": "APIResourceList", "groupVersion": "v1", `resources.#(name=="pods").kind`: "Pod"}},
		{"/apis/apps/v1", map[string]string{"groupVersion": "apps/v1", `resources.#(name=="deployments/scale").group`: "autoscaling", `resources.#(name=="deployments").verbs.#`: "8"}},
		{"/apis/test.dev/v1", map[string]string{`resources.#(name=="widgets").shortNames.0`: "wi", `resources.#(name=="widgets/status").kind`: "Widget"}},
		{"/apis/authorization.k8s.io/v1", map[string]string{`resources.#(name=="selfsubjectaccessreviews").verbs.#`: "1"}},
	} {
		for _, accept := range []string{"application/json", "*/*", "application/json;g=other;v=v2;as=APIGroupDiscoveryList,application/json"} {
			r := w.want(http.StatusOK, "GET", test.path, "", "Accept: "+accept)
			for path, want := range test.want {
				if got := r.get(path); got != want {
					t.Errorf("GET %s as %s: %s is %q, want %q", test.path, accept, path, got, want)
				}
			}
		}
	}
	for _, path := range []string{"/apis/apps/v9", "/api/v2"} {
		if r := w.want(http.StatusNotFound, "GET", path, "", "Accept: application/json"); r.get("kind") != "Status" || r.get("reason") != "NotFound" {
			t.Errorf("GET %s answered %s", path, r.body)
		}
	}
	for _, path := range []string{"/apis/none.dev", "/apis/none.dev/v1"} {
		if r := w.want(http.StatusNotFound, "GET", path, "", "Accept: application/json"); r.body != "404 page not found\n" {
			t.Errorf("GET %s answered %s", path, r.body)
		}
	}
	if r := w.want(http.StatusMethodNotAllowed, "POST", "/apis", "{}"); r.header.Get("Allow") != "GET" {
		t.Errorf("Allow is %q", r.header.Get("Allow"))
	}
}

// TestDiscoveryIsServed: every verb in discovery works, and all others answer 405.
func TestDiscoveryIsServed(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.define()
	methods := map[string][]string{
		"create": {"POST", ""}, "list": {"GET", ""}, "deletecollection": {"DELETE", ""}, // on the collection
		"get": {"GET", "/none"}, "update": {"PUT", "/none"}, "patch": {"PATCH", "/none"}, "delete": {"DELETE", "/none"},
	}
	for _, document := range []string{"/api/v1", "/apis/authorization.k8s.io/v1", "/apis/apps/v1", "/apis/test.dev/v1", "/apis/apiextensions.k8s.io/v1"} {
		for _, r := range gjson.Get(w.want(http.StatusOK, "GET", document, "").body, "resources").Array() {
			plural, part, _ := strings.Cut(r.Get("name").String(), "/")
			var verbs []string
			for _, v := range r.Get("verbs").Array() {
				verbs = append(verbs, v.String())
			}
			base := document
			if r.Get("namespaced").Bool() {
				base += "/namespaces/shop"
			}
			for verb, m := range methods {
				path := base + "/" + plural + m[1]
				if part != "" {
					if m[1] == "" || verb == "get" && part == "finalize" {
						continue // a subresource needs an object; finalize can be read, but discovery omits it
					}
					path += "/" + part
				}
				code := w.send(m[0], path, "").code
				if named := slices.Contains(verbs, verb) || part == "finalize" && verb == "patch"; named == (code == http.StatusMethodNotAllowed) {
					t.Errorf("%s %s answered %d; discovery names %v", m[0], path, code, verbs)
				}
			}
		}
	}
}
