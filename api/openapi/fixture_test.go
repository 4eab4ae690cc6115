package openapi

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
)

// present is a strategy without behaviour: these tests only check whether a kind has one.
type present struct{ lifecycle.Strategy }

// newKind makes a kind with one version and no behaviour.
func newKind(gvk schema.GroupVersionKind, plural string, change func(*kind.Kind, *kind.Version)) *kind.Kind {
	k := &kind.Kind{
		Group: gvk.Group, Name: gvk.Kind, ListName: gvk.Kind + "List", Plural: plural,
		Namespaced: true, Storage: kind.StorageName(gvk.Group, plural),
	}
	v := &kind.Version{Kind: k, GVK: gvk}
	k.Versions = []*kind.Version{v}
	if change != nil {
		change(k, v)
	}
	return k
}

func gvk(group, version, name string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: version, Kind: name}
}

var widgetGVK = gvk("example.exeunt.dev", "v1", "Widget")

// widgetSchema has one of everything that v2 cannot express.
const widgetSchema = `{
	"type": "object",
	"description": "Widget is a thing.",
	"properties": {
		"metadata": {"type": "object"},
		"spec": {
			"type": "object",
			"required": ["size", "maybe"],
			"properties": {
				"size": {"type": "integer", "format": "int32", "default": 3, "minimum": 1},
				"maybe": {"type": "object", "nullable": true, "properties": {"a": {"type": "string"}}},
				"port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
				"free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"b": {"type": "string"}}},
				"rows": {"type": "array", "x-kubernetes-preserve-unknown-fields": true},
				"choice": {"type": "string", "oneOf": [{"pattern": "a"}, {"pattern": "b"}], "not": {"enum": ["c"]}, "enum": ["a", "b"]},
				"parts": {
					"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
					"items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
				},
				"labels": {"type": "object", "additionalProperties": {"type": "string", "nullable": true}}
			},
			"x-kubernetes-validations": [{"rule": "self.size > 0"}]
		}
	}
}`

// widget is a custom kind with a schema, a status and a scale.
func widget(t *testing.T) *kind.Kind {
	t.Helper()
	var s spec.Schema
	if err := json.Unmarshal([]byte(widgetSchema), &s); err != nil {
		t.Fatal(err)
	}
	return newKind(widgetGVK, "widgets", func(_ *kind.Kind, v *kind.Version) {
		v.Schema, v.Status, v.Scale = kind.SchemaOf(&s), present{}, &kind.Scale{}
		v.SelectableFields = []string{"spec.choice"}
	})
}

// fewKinds is one kind of each sort.
func fewKinds(t *testing.T) []*kind.Kind {
	t.Helper()
	cluster := func(k *kind.Kind, v *kind.Version) { k.Namespaced, v.Status = false, present{} }
	return []*kind.Kind{
		newKind(gvk("", "v1", "Namespace"), "namespaces", cluster),
		newKind(gvk("", "v1", "Pod"), "pods", func(k *kind.Kind, v *kind.Version) {
			k.ReturnsDeleted, v.Status = true, present{}
		}),
		newKind(gvk("", "v1", "ConfigMap"), "configmaps", nil),
		newKind(gvk("apps", "v1", "Deployment"), "deployments", func(_ *kind.Kind, v *kind.Version) {
			v.Status, v.Scale = present{}, &kind.Scale{}
		}),
		newKind(gvk("rbac.authorization.k8s.io", "v1", "ClusterRole"), "clusterroles", func(k *kind.Kind, _ *kind.Version) {
			k.Namespaced = false
		}),
		newKind(gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition"), "customresourcedefinitions", cluster),
		newKind(gvk("authorization.k8s.io", "v1", "LocalSubjectAccessReview"), "localsubjectaccessreviews", func(k *kind.Kind, _ *kind.Version) {
			k.Ephemeral = true
		}),
		widget(t),
		newKind(gvk("plain.exeunt.dev", "v1beta1", "Gadget"), "gadgets", nil),
	}
}

// get asks the service and requires an answer of 200.
func get(t *testing.T, s *Service, target string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	w := ask(s, target, header...)
	if w.Code != http.StatusOK {
		t.Fatalf("GET %s answers %d: %s", target, w.Code, w.Body)
	}
	return w
}

func ask(s *Service, target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// getV3 reads a group version's document.
func getV3(t *testing.T, s *Service, gv schema.GroupVersion) *spec3.OpenAPI {
	t.Helper()
	var doc spec3.OpenAPI
	if err := json.Unmarshal(get(t, s, "/openapi/v3/"+documentPath(gv)).Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	return &doc
}

// getV2 reads the v2 document.
func getV2(t *testing.T, s *Service) *spec.Swagger {
	t.Helper()
	var doc spec.Swagger
	if err := json.Unmarshal(get(t, s, "/openapi/v2").Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	return &doc
}
