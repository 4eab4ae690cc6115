package api

import (
	"strings"
	"testing"

	"github.com/exeunt/exeunt/store"
)

// TestAnswersLikeKubernetes asserts texts that were compared with a real kube-apiserver
// (make long RUN=diff) and that clients can tell apart.
func TestAnswersLikeKubernetes(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.define()
	const roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/roles"
	for _, body := range []string{`{"metadata":{"name":"none"}}`, `{"metadata":{"name":"empty"},"rules":[]}`} {
		if r := w.want(201, "POST", roles, body); !strings.Contains(r.body, `"rules":null`) {
			t.Errorf("a role without rules is %s", r.body)
		}
	}
	w.want(201, "POST", widgets, `{"apiVersion":"test.dev/v1","kind":"Widget","metadata":{"name":"a"}}`)
	w.configMap("a", "")
	for path, want := range map[string]bool{widgets: true, configMaps: false} {
		for _, pretty := range []string{"", "?pretty=true"} { // the fast path and the library
			r := w.want(200, "GET", path+pretty, "")
			if got := strings.Contains(strings.ReplaceAll(r.body, " ", ""), `"continue":""`); got != want {
				t.Errorf("%s%s has an empty continue token: %v, want %v: %s", path, pretty, got, want, r.body)
			}
		}
	}
	for path, text := range map[string]string{
		"/apis/nothing.example.com/v1/things":             "404 page not found\n",
		"/apis/test.dev/v1/namespaces/shop/things":        "404 page not found\n",
		"/apis/test.dev/v2/namespaces/shop/widgets":       "404 page not found\n",
		"/apis/apps/v1/namespaces/shop/things":            "",
		"/api/v1/namespaces/shop/configmaps/a/things":     "",
		"/apis/apps/v1beta9/namespaces/shop/deployments":  "",
		"/api/v1/namespaces/shop/configmaps/a/b/c/d/e/ff": "",
	} {
		r := w.want(404, "GET", path, "")
		if text == "" && (r.get("kind") != "Status" || !strings.HasPrefix(r.get("message"), "the server could not find the requested resource") || r.get("details") != "{}") {
			t.Errorf("%s answered %s", path, r.body)
		}
		if text != "" && r.body != text {
			t.Errorf("%s answered %q", path, r.body)
		}
	}
	const number = `resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`
	for path, want := range map[string]string{
		configMaps + "/a?resourceVersion=x": number, configMaps + "?watch=1&resourceVersion=x": number,
		configMaps + "?resourceVersion=x": "invalid resource version: " + number,
	} {
		code := 500
		if strings.HasPrefix(want, "invalid") {
			code = 400
		}
		for _, pretty := range []string{"", "&pretty=true"} {
			if r := w.want(code, "GET", path+pretty, ""); r.get("message") != want {
				t.Errorf("%s answered %s", path, r.body)
			}
		}
	}
}
