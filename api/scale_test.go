package api

import (
	"net/http"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/exeunt/exeunt/store"
)

const deployment = `{"metadata":{"name":"a"},"spec":{"replicas":2,"selector":{"matchLabels":{"app":"web"}},
	"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`

// TestScale reads and writes the same view of a built-in and of a custom kind.
func TestScale(t *testing.T) {
	for name, test := range map[string]struct{ path, body, selector, version string }{
		"deployment": {"/apis/apps/v1/namespaces/shop/deployments", deployment, "app=web", "apps/v1"},
		"replication controller": {"/api/v1/namespaces/shop/replicationcontrollers", `{"metadata":{"name":"a"},"spec":{"replicas":2,"selector":{"app":"web"},
			"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`, "app=web", "v1"},
		"custom kind": {widgets, `{"apiVersion":"test.dev/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"replicas":2}}`, "", "test.dev/v1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, store.Options{})
			w.define()
			created := w.want(http.StatusCreated, "POST", test.path, test.body, "User-Agent: maker/1")
			scale := w.want(http.StatusOK, "GET", test.path+"/a/scale", "")
			for path, want := range map[string]string{
				"kind": "Scale", "apiVersion": "autoscaling/v1", "spec.replicas": "2", "status.selector": test.selector,
				"metadata.uid": created.get("metadata.uid"), "metadata.resourceVersion": created.get("metadata.resourceVersion"),
			} {
				if got := scale.get(path); got != want {
					t.Errorf("%s is %q, want %q", path, got, want)
				}
			}
			w.want(http.StatusOK, "PATCH", test.path+"/a/scale?fieldManager=scaler", `{"spec":{"replicas":5}}`, "Content-Type: application/merge-patch+json")
			scaled := w.want(http.StatusOK, "GET", test.path+"/a", "")
			if scaled.get("spec.replicas") != "5" || scaled.get("metadata.generation") != "2" {
				t.Errorf("scaled: %s", scaled.body)
			}
			owner := gjson.Get(scaled.body, `metadata.managedFields.#(manager=="scaler")`)
			if owner.Get("fieldsV1.f:spec.f:replicas").Raw != "{}" || owner.Get("apiVersion").String() != test.version {
				t.Errorf("the scaler does not own the replicas: %s", gjson.Get(scaled.body, "metadata.managedFields").Raw)
			}
			if gjson.Get(scaled.body, `metadata.managedFields.#(manager=="maker").fieldsV1.f:spec.f:replicas`).Exists() {
				t.Error("the maker owns the replicas still")
			}
			w.want(http.StatusOK, "PUT", test.path+"/a/scale", `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"a","namespace":"shop"},"spec":{"replicas":0}}`)
			if got := w.want(http.StatusOK, "GET", test.path+"/a", "").get("spec.replicas"); got != "0" {
				t.Errorf("replicas are %s", got)
			}
			stale := `{"metadata":{"name":"a","namespace":"shop","resourceVersion":"` + created.get("metadata.resourceVersion") + `"},"spec":{"replicas":1}}`
			w.want(http.StatusConflict, "PUT", test.path+"/a/scale", stale)
			w.want(http.StatusUnprocessableEntity, "PATCH", test.path+"/a/scale", `{"spec":{"replicas":-1}}`, "Content-Type: application/merge-patch+json")
			w.want(http.StatusNotFound, "GET", test.path+"/none/scale", "")
			w.want(http.StatusNotFound, "PUT", test.path+"/none/scale", `{"metadata":{"name":"none","namespace":"shop"},"spec":{"replicas":1}}`)
		})
	}
}

// TestStatusSubresource: /status writes only the status, and the object everything else.
func TestStatusSubresource(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.define()
	w.want(http.StatusCreated, "POST", widgets, `{"apiVersion":"test.dev/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"color":"red"},"status":{"replicas":9}}`)
	if got := w.want(http.StatusOK, "GET", widgets+"/a", ""); gjson.Get(got.body, "status").Exists() {
		t.Errorf("a create wrote the status: %s", got.body)
	}
	w.patch(widgets+"/a/status", `{"spec":{"color":"blue"},"status":{"replicas":3,"selector":"app=web"}}`)
	w.patch(widgets+"/a", `{"status":{"replicas":7}}`)
	got := w.want(http.StatusOK, "GET", widgets+"/a/status", "")
	if got.get("spec.color") != "red" || got.get("status.replicas") != "3" || got.get("metadata.generation") != "1" {
		t.Errorf("the object is %s", got.body)
	}
	// Without spec.replicas there is no scale to read, but one to write.
	if r := w.want(http.StatusInternalServerError, "GET", widgets+"/a/scale", ""); r.get("message") != `Internal error occurred: the spec replicas field ".spec.replicas" does not exist` {
		t.Errorf("the missing scale is %s", r.body)
	}
	w.patch(widgets+"/a/scale", `{"spec":{"replicas":2}}`)
	if scale := w.want(http.StatusOK, "GET", widgets+"/a/scale", ""); scale.get("spec.replicas") != "2" || scale.get("status.selector") != "app=web" || scale.get("status.replicas") != "3" {
		t.Errorf("the scale is %s", scale.body)
	}
}

// TestNamespaceFinalize: only /finalize removes a namespace's spec finalizers, and with the
// last one a namespace that is being deleted is removed.
func TestNamespaceFinalize(t *testing.T) {
	w := newWorld(t, store.Options{})
	const ns = "/api/v1/namespaces/shop"
	w.configMap("a", "")
	if got := w.want(http.StatusOK, "GET", ns, ""); got.get("spec.finalizers.0") != "kubernetes" || got.get("status.phase") != "Active" {
		t.Fatalf("namespace is %s", got.body)
	}
	w.want(http.StatusOK, "DELETE", ns, "")
	if got := w.want(http.StatusOK, "GET", ns, ""); got.get("status.phase") != "Terminating" {
		t.Fatalf("namespace is %s", got.body)
	}
	r := w.want(http.StatusForbidden, "POST", configMaps, `{"metadata":{"name":"late"}}`)
	if r.get("details.causes.0.reason") != "NamespaceTerminating" {
		t.Errorf("a late create answered %s", r.body)
	}
	w.want(http.StatusOK, "PUT", ns, `{"metadata":{"name":"shop"},"spec":{"finalizers":[]}}`)
	if got := w.want(http.StatusOK, "GET", ns, ""); got.get("spec.finalizers.0") != "kubernetes" {
		t.Fatalf("an ordinary update took the finalizer: %s", got.body)
	}
	w.want(http.StatusOK, "DELETE", configMaps+"/a", "")
	w.want(http.StatusOK, "PUT", ns+"/finalize", `{"metadata":{"name":"shop"},"spec":{"finalizers":[]}}`)
	w.want(http.StatusNotFound, "GET", ns, "")
	w.want(http.StatusNotFound, "PUT", ns+"/finalize", `{"metadata":{"name":"shop"},"spec":{"finalizers":[]}}`)
}

func TestReviews(t *testing.T) {
	w := newWorld(t, store.Options{})
	for _, test := range []struct {
		name, path, body string
		code             int
		want             map[string]string
	}{
		{"who am I", "/apis/authentication.k8s.io/v1/selfsubjectreviews", `{}`, 201,
			map[string]string{"status.userInfo.username": "tester", "status.userInfo.groups.0": "system:masters", "status.userInfo.groups.1": "system:authenticated"}},
		{"may I", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`, 201, map[string]string{"status.allowed": "true"}},
		{"may I, of a path", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"spec":{"nonResourceAttributes":{"verb":"get","path":"/x"}}}`, 201, map[string]string{"status.allowed": "true"}},
		{"may I, of nothing", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"spec":{}}`, 422, nil},
		{"may I, of both", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"spec":{"resourceAttributes":{},"nonResourceAttributes":{}}}`, 422, nil},
		{"may a user without a certificate", "/apis/authorization.k8s.io/v1/subjectaccessreviews", `{"spec":{"user":"jane","resourceAttributes":{"verb":"get"}}}`, 201, map[string]string{"status.allowed": "false"}},
		{"may a user that another server authenticated", "/apis/authorization.k8s.io/v1/subjectaccessreviews", `{"spec":{"user":"jane","groups":["system:authenticated"],"resourceAttributes":{"verb":"get"}}}`, 201, map[string]string{"status.allowed": "false"}},
		{"may a user with the caller's name only", "/apis/authorization.k8s.io/v1/subjectaccessreviews", `{"spec":{"user":"tester","resourceAttributes":{"verb":"get"}}}`, 201, map[string]string{"status.allowed": "false"}},
		{"may the caller", "/apis/authorization.k8s.io/v1/subjectaccessreviews", `{"spec":{"user":"tester","groups":["system:authenticated","system:masters"],"resourceAttributes":{"verb":"get"}}}`, 201, map[string]string{"status.allowed": "true"}},
		{"may an administrator", "/apis/authorization.k8s.io/v1/subjectaccessreviews", `{"spec":{"user":"jane","groups":["system:masters"],"resourceAttributes":{"verb":"get"}}}`, 201, map[string]string{"status.allowed": "true"}},
		{"may a user read a public path", "/apis/authorization.k8s.io/v1/subjectaccessreviews", `{"spec":{"user":"jane","groups":["system:unauthenticated"],"nonResourceAttributes":{"verb":"get","path":"/version"}}}`, 201, map[string]string{"status.allowed": "true"}},
		{"may a user change a public path", "/apis/authorization.k8s.io/v1/subjectaccessreviews", `{"spec":{"user":"jane","nonResourceAttributes":{"verb":"post","path":"/version"}}}`, 201, map[string]string{"status.allowed": "false"}},
		{"may an administrator impersonate", "/apis/authorization.k8s.io/v1/subjectaccessreviews", `{"spec":{"user":"jane","groups":["system:masters"],"resourceAttributes":{"verb":"impersonate","resource":"users"}}}`, 201, map[string]string{"status.allowed": "true"}},
		{"may I impersonate", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"spec":{"resourceAttributes":{"verb":"impersonate","resource":"users"}}}`, 201, map[string]string{"status.allowed": "true"}},
		{"may a user, in a namespace", "/apis/authorization.k8s.io/v1/namespaces/shop/localsubjectaccessreviews", `{"metadata":{"namespace":"shop"},"spec":{"user":"jane","resourceAttributes":{"verb":"get","namespace":"shop"}}}`, 201, map[string]string{"status.allowed": "false"}},
		{"may an administrator, in a namespace", "/apis/authorization.k8s.io/v1/namespaces/shop/localsubjectaccessreviews", `{"metadata":{"namespace":"shop"},"spec":{"groups":["system:masters"],"resourceAttributes":{"verb":"get","namespace":"shop"}}}`, 201, map[string]string{"status.allowed": "true"}},
		{"may an anonymous client", "/apis/authorization.k8s.io/v1/subjectaccessreviews", `{"spec":{"user":"system:anonymous","resourceAttributes":{"verb":"get"}}}`, 201, map[string]string{"status.allowed": "false"}},
		{"may a user in another namespace than the review's", "/apis/authorization.k8s.io/v1/namespaces/shop/localsubjectaccessreviews", `{"spec":{"user":"jane","resourceAttributes":{"namespace":"other"}}}`, 422, nil},
		{"what may I", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", `{"spec":{"namespace":"shop"}}`, 201, map[string]string{"status.resourceRules.0.verbs.#": "1", "status.resourceRules.0.verbs.0": "*", "status.resourceRules.0.resources.0": "*", "status.incomplete": "false"}},
		{"whose token", "/apis/authentication.k8s.io/v1/tokenreviews", `{"spec":{"token":"abc"}}`, 201, map[string]string{"status.authenticated": "", "status.user.username": ""}},
		{"no token", "/apis/authentication.k8s.io/v1/tokenreviews", `{"spec":{}}`, 400, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := w.want(test.code, "POST", test.path, test.body)
			for path, want := range test.want {
				if got := r.get(path); got != want {
					t.Errorf("%s is %q, want %q in %s", path, got, want, r.body)
				}
			}
		})
	}
}

// TestReviewAsTable: the review kinds have no Table, as in Kubernetes.
func TestReviewAsTable(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.want(http.StatusNotAcceptable, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
		`{"spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`, "Accept: application/json;as=Table;v=v1;g=meta.k8s.io")
}
