package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/exeunt/exeunt/kind"
)

// checkRefs fails for every reference in a document that has no target.
func checkRefs(t *testing.T, name string, text []byte) {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	seen := 0
	var walk func(any)
	walk = func(value any) {
		switch value := value.(type) {
		case []any:
			for _, v := range value {
				walk(v)
			}
		case map[string]any:
			// A property may be called $ref too (in JSONSchemaProps).
			if ref, ok := value["$ref"].(string); ok {
				seen++
				if !resolves(doc, ref) {
					t.Errorf("%s: %s has no target", name, ref)
				}
			}
			for _, v := range value {
				walk(v)
			}
		}
	}
	walk(doc)
	if seen == 0 {
		t.Errorf("%s has no references", name)
	}
}

func resolves(doc map[string]any, ref string) bool {
	rest, ok := strings.CutPrefix(ref, "#/")
	var here any = doc
	for _, step := range strings.Split(rest, "/") {
		m, isMap := here.(map[string]any)
		if !isMap {
			return false
		}
		here = m[step]
	}
	return ok && here != nil
}

func TestEveryReferenceResolves(t *testing.T) {
	t.Parallel()
	s := fewService(t)
	checkRefs(t, "v2", get(t, s, "/openapi/v2").Body.Bytes())
	for name, url := range readIndex(t, s) {
		checkRefs(t, name, get(t, s, url).Body.Bytes())
	}
}

// checkKind fails unless kubectl can work with a kind by its document.
func checkKind(t *testing.T, doc *spec3.OpenAPI, v *kind.Version) {
	t.Helper()
	var described []string
	for name, s := range doc.Components.Schemas {
		if slices.Contains(kindsOf(s), v.GVK) {
			described = append(described, name)
		}
	}
	if len(described) != 1 {
		t.Errorf("%s is described by %q", v.GVK, described)
	}
	ours := strings.HasSuffix(v.GVK.Group, "exeunt.dev")
	for _, name := range described {
		if ours == strings.HasPrefix(name, "io.k8s.api") {
			t.Errorf("%s is described by %s", v.GVK, name)
		}
	}
	root := "/" + documentPath(v.GVK.GroupVersion())
	collection := root + "/" + v.Kind.Plural
	if v.Kind.Namespaced {
		if !v.Kind.Ephemeral {
			checkOperations(t, doc, collection, v.GVK, "list")
		}
		collection = root + "/namespaces/{namespace}/" + v.Kind.Plural
	}
	if v.Kind.Ephemeral {
		checkOperations(t, doc, collection, v.GVK, "post")
		return
	}
	actions := []string{"list", "post"}
	if !v.Kind.IsNamespace() {
		actions = append(actions, "deletecollection")
	}
	checkOperations(t, doc, collection, v.GVK, actions...)
	checkOperations(t, doc, collection+"/{name}", v.GVK, "get", "put", "patch", "delete")
	if v.Status != nil {
		checkOperations(t, doc, collection+"/{name}/status", v.GVK, "get", "put", "patch")
	}
	if v.Scale != nil {
		checkOperations(t, doc, collection+"/{name}/scale", scaleGVK, "get", "put", "patch")
	}
	if err := supportsParameter(doc, v.GVK, "fieldValidation"); err != nil {
		t.Error(err)
	}
}

// operations are a path's, by action.
func operations(p *spec3.Path) map[string]*spec3.Operation {
	all := map[string]*spec3.Operation{}
	for _, op := range []*spec3.Operation{p.Get, p.Put, p.Post, p.Patch, p.Delete} {
		if op != nil {
			action, _ := op.Extensions.GetString(extAction)
			all[action] = op
		}
	}
	return all
}

func checkOperations(t *testing.T, doc *spec3.OpenAPI, path string, gvk schema.GroupVersionKind, actions ...string) {
	t.Helper()
	p := doc.Paths.Paths[path]
	if p == nil {
		t.Errorf("path %s is missing", path)
		return
	}
	all := operations(p)
	got := slices.Sorted(maps.Keys(all))
	slices.Sort(actions)
	if !slices.Equal(got, actions) {
		t.Errorf("%s has %q, want %q", path, got, actions)
	}
	for action, op := range all {
		if !operationHas(op, gvk) {
			t.Errorf("%s: %s is not of kind %s but %v", path, action, gvk, op.Extensions[extGVK])
		}
		if writes := action != "get" && action != "list"; writes != (op.RequestBody != nil) {
			t.Errorf("%s: %s has body %v", path, action, op.RequestBody)
		}
		if op.RequestBody != nil && op.RequestBody.Required == strings.HasPrefix(action, "delete") {
			t.Errorf("%s: %s has a body that is required: %v", path, action, op.RequestBody.Required)
		}
		if op.Responses.StatusCodeResponses[200] == nil || op.Responses.StatusCodeResponses[401] == nil {
			t.Errorf("%s: %s has responses %v", path, action, op.Responses.StatusCodeResponses)
		}
	}
}

func operationHas(op *spec3.Operation, gvk schema.GroupVersionKind) bool {
	var got map[string]string
	if err := op.Extensions.GetObject(extGVK, &got); err != nil {
		return false
	}
	return got["group"] == gvk.Group && got["version"] == gvk.Version && got["kind"] == gvk.Kind
}

// supportsParameter does the check that kubectl does before it lets the server validate: the
// first patch operation of the kind that it finds must have the parameter. So all of them must.
func supportsParameter(doc *spec3.OpenAPI, gvk schema.GroupVersionKind, name string) error {
	found := false
	for path, p := range doc.Paths.Paths {
		if p.Patch == nil || !operationHas(p.Patch, gvk) {
			continue
		}
		found = true
		if !slices.ContainsFunc(p.Patch.Parameters, func(p *spec3.Parameter) bool { return p.Name == name && p.In == "query" }) {
			return fmt.Errorf("the patch of %s has no parameter %s", path, name)
		}
	}
	if !found {
		return fmt.Errorf("%s has no patch", gvk)
	}
	return nil
}

// checkKinds checks every kind that a service describes.
func checkKinds(t *testing.T, s *Service) {
	t.Helper()
	docs := map[schema.GroupVersion]*spec3.OpenAPI{}
	for _, k := range s.registry.Snapshot().Kinds {
		for _, v := range k.Versions {
			gv := v.GVK.GroupVersion()
			if docs[gv] == nil {
				docs[gv] = getV3(t, s, gv)
			}
			checkKind(t, docs[gv], v)
		}
	}
}

func TestEveryKindIsComplete(t *testing.T) {
	t.Parallel()
	checkKinds(t, fewService(t))
}

func TestOperationsAreUnique(t *testing.T) {
	t.Parallel()
	doc := getV2(t, fewService(t))
	ids := map[string]string{}
	for path, item := range doc.Paths.Paths {
		for _, op := range []*spec.Operation{item.Get, item.Put, item.Post, item.Patch, item.Delete} {
			if op == nil {
				continue
			}
			if other, taken := ids[op.ID]; taken {
				t.Errorf("%s and %s are both %s", path, other, op.ID)
			}
			ids[op.ID] = path
		}
	}
	for id, path := range map[string]string{
		"listCoreV1NamespacedPod":                                 "/api/v1/namespaces/{namespace}/pods",
		"listCoreV1PodForAllNamespaces":                           "/api/v1/pods",
		"readCoreV1NamespaceStatus":                               "/api/v1/namespaces/{name}/status",
		"replaceCoreV1NamespaceFinalize":                          "/api/v1/namespaces/{name}/finalize",
		"patchAppsV1NamespacedDeploymentScale":                    "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale",
		"deleteAppsV1CollectionNamespacedDeployment":              "/apis/apps/v1/namespaces/{namespace}/deployments",
		"createRbacAuthorizationV1ClusterRole":                    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
		"deleteExampleExeuntDevV1NamespacedWidget":                "/apis/example.exeunt.dev/v1/namespaces/{namespace}/widgets/{name}",
		"createAuthorizationV1NamespacedLocalSubjectAccessReview": "/apis/authorization.k8s.io/v1/namespaces/{namespace}/localsubjectaccessreviews",
	} {
		if ids[id] != path {
			t.Errorf("%s is at %q, want %q", id, ids[id], path)
		}
	}
}

func TestParameters(t *testing.T) {
	t.Parallel()
	doc := getV3(t, fewService(t), schema.GroupVersion{Group: "apps", Version: "v1"})
	collection := doc.Paths.Paths["/apis/apps/v1/namespaces/{namespace}/deployments"]
	item := doc.Paths.Paths["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]
	for name, c := range map[string]struct {
		have []*spec3.Parameter
		want string
	}{
		"path":   {item.Parameters, "name namespace pretty"},
		"get":    {item.Get.Parameters, "resourceVersion"},
		"create": {collection.Post.Parameters, "dryRun fieldManager fieldValidation"},
		"put":    {item.Put.Parameters, "dryRun fieldManager fieldValidation"},
		"patch":  {item.Patch.Parameters, "dryRun fieldManager fieldValidation force"},
		"delete": {item.Delete.Parameters, "dryRun gracePeriodSeconds orphanDependents propagationPolicy"},
		"list": {collection.Get.Parameters, "allowWatchBookmarks continue fieldSelector labelSelector limit " +
			"resourceVersion resourceVersionMatch sendInitialEvents timeoutSeconds watch"},
		"deletecollection": {collection.Delete.Parameters, "continue dryRun fieldSelector gracePeriodSeconds labelSelector limit " +
			"orphanDependents propagationPolicy resourceVersion resourceVersionMatch sendInitialEvents timeoutSeconds"},
	} {
		var names []string
		for _, p := range c.have {
			names = append(names, p.Name)
			if p.Description == "" || len(p.Schema.Type) != 1 {
				t.Errorf("%s: parameter %s says %q of type %v", name, p.Name, p.Description, p.Schema.Type)
			}
		}
		if diff := cmp.Diff(c.want, strings.Join(names, " ")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestMediaTypes(t *testing.T) {
	t.Parallel()
	s := fewService(t)
	types := func(gv schema.GroupVersion, path string) (consumes, produces []string) {
		op := getV3(t, s, gv).Paths.Paths[path].Patch
		return slices.Sorted(maps.Keys(op.RequestBody.Content)), slices.Sorted(maps.Keys(op.Responses.StatusCodeResponses[200].Content))
	}
	consumes, produces := types(schema.GroupVersion{Version: "v1"}, "/api/v1/namespaces/{name}")
	if !slices.Contains(consumes, "application/strategic-merge-patch+json") || !slices.Contains(consumes, "application/apply-patch+yaml") {
		t.Errorf("a built-in kind's patch takes %q", consumes)
	}
	if !slices.Contains(produces, "application/vnd.kubernetes.protobuf") {
		t.Errorf("a built-in kind is answered as %q", produces)
	}
	consumes, produces = types(widgetGVK.GroupVersion(), "/apis/example.exeunt.dev/v1/namespaces/{namespace}/widgets/{name}")
	if slices.Contains(consumes, "application/strategic-merge-patch+json") || len(consumes) != 3 {
		t.Errorf("a custom kind's patch takes %q", consumes)
	}
	if slices.Contains(produces, "application/vnd.kubernetes.protobuf") {
		t.Errorf("a custom kind is answered as %q", produces)
	}
}

func TestDeleteAnswers(t *testing.T) {
	t.Parallel()
	paths := getV2(t, fewService(t)).Paths.Paths
	for path, want := range map[string]string{
		"/api/v1/namespaces/{namespace}/pods/{name}":       "io.k8s.api.core.v1.Pod",
		"/api/v1/namespaces/{namespace}/configmaps/{name}": nameStatus,
		"/api/v1/namespaces/{namespace}/pods":              nameStatus,
	} {
		for _, code := range []int{200, 202} {
			answer, ok := paths[path].Delete.Responses.StatusCodeResponses[code]
			if !ok && code == 202 && !strings.HasSuffix(path, "{name}") {
				continue
			}
			if got := refName(answer.Schema.Ref.String()); got != want {
				t.Errorf("delete of %s answers %d with %s, want %s", path, code, got, want)
			}
		}
	}
}
