package openapi

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/exeunt/exeunt/kind"
)

// asJSON is a schema in a form that can be compared with text.
func asJSON(t *testing.T, value any) any {
	t.Helper()
	text, ok := value.(string)
	if !ok {
		b, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		text = string(b)
	}
	var out any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestBuiltinSchemas(t *testing.T) {
	t.Parallel()
	s := fewService(t)
	core := getV3(t, s, schema.GroupVersion{Version: "v1"}).Components.Schemas
	v2 := getV2(t, s).Definitions

	containers := core["io.k8s.api.core.v1.PodSpec"].Properties["containers"]
	for ext, want := range map[string]string{
		"x-kubernetes-patch-merge-key": "name", "x-kubernetes-patch-strategy": "merge", "x-kubernetes-list-type": "map",
	} {
		if got := containers.Extensions[ext]; got != want {
			t.Errorf("containers: %s is %v, want %s", ext, got, want)
		}
	}
	if got := core["io.k8s.api.core.v1.PodSpec"].Required; !cmp.Equal(got, []string{"containers"}) {
		t.Errorf("PodSpec requires %q", got)
	}
	policy := core["io.k8s.api.core.v1.PodSpec"].Properties["restartPolicy"]
	if len(policy.Enum) != 3 || policy.Description == "" {
		t.Errorf("restartPolicy has enum %v, description %q", policy.Enum, policy.Description)
	}

	const quantity = "io.k8s.apimachinery.pkg.api.resource.Quantity"
	if s := core[quantity]; len(s.OneOf) != 2 || s.Extensions[extV2Schema] != nil {
		t.Errorf("v3 Quantity is %v", asJSON(t, s))
	}
	if s := v2[quantity]; !s.Type.Contains("string") || len(s.OneOf) != 0 || len(s.Extensions) != 0 {
		t.Errorf("v2 Quantity is %v", asJSON(t, s))
	}

	// A reference stands alone in v3; v2 has no defaults.
	described := core["io.k8s.api.core.v1.Pod"].Properties["metadata"]
	if described.Ref.String() != "" || len(described.AllOf) != 1 || described.Default == nil {
		t.Errorf("v3 metadata of Pod is %v", asJSON(t, described))
	}
	old := v2["io.k8s.api.core.v1.Pod"].Properties["metadata"]
	if old.Ref.String() != "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta" || old.Default != nil {
		t.Errorf("v2 metadata of Pod is %v", asJSON(t, old))
	}
}

func TestSharedKindsNameTheirOwnGroup(t *testing.T) {
	t.Parallel()
	s := fewService(t)
	const name = metaV1 + "DeleteOptions"
	got := kindsOf(getV3(t, s, schema.GroupVersion{Group: "apps", Version: "v1"}).Components.Schemas[name])
	want := []schema.GroupVersionKind{gvk("", "v1", "DeleteOptions"), gvk("apps", "v1", "DeleteOptions")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("v3 of apps/v1: %s", diff)
	}
	old := getV2(t, s).Definitions[name]
	if got := len(kindsOf(&old)); got < 10 {
		t.Errorf("v2 names %d groups", got)
	}
}

func TestCustomSchemaV3(t *testing.T) {
	t.Parallel()
	s := fewService(t)
	schemas := getV3(t, s, widgetGVK.GroupVersion()).Components.Schemas
	object := schemas["dev.exeunt.example.v1.Widget"]
	if object == nil {
		t.Fatal("Widget has no definition")
	}
	metadata := object.Properties["metadata"]
	if len(metadata.AllOf) != 1 || refName(metadata.AllOf[0].Ref.String()) != nameObjectMeta {
		t.Errorf("metadata is %v", asJSON(t, metadata))
	}
	if object.Properties["apiVersion"].Description == "" || object.Properties["kind"].Description == "" {
		t.Error("apiVersion and kind are not described")
	}
	want := asJSON(t, widgetSchema).(map[string]any)["properties"].(map[string]any)["spec"]
	if diff := cmp.Diff(want, asJSON(t, object.Properties["spec"])); diff != "" {
		t.Errorf("spec: %s", diff)
	}
	if diff := cmp.Diff([]any{map[string]any{"fieldPath": "spec.choice"}}, object.Extensions[extSelectable]); diff != "" {
		t.Errorf("selectable fields: %s", diff)
	}
	list := schemas["dev.exeunt.example.v1.WidgetList"]
	if list == nil || refName(list.Properties["items"].Items.Schema.Ref.String()) != "dev.exeunt.example.v1.Widget" {
		t.Errorf("the list is %v", asJSON(t, list))
	}
	if diff := cmp.Diff([]schema.GroupVersionKind{gvk("example.exeunt.dev", "v1", "WidgetList")}, kindsOf(list)); diff != "" {
		t.Errorf("kind of the list: %s", diff)
	}
	if diff := cmp.Diff([]any{map[string]any{"fieldPath": "spec.choice"}}, list.Extensions[extSelectable]); diff != "" {
		t.Errorf("selectable fields of the list: %s", diff)
	}
	v, _ := s.registry.Snapshot().Lookup(widgetGVK.GroupVersion().WithResource("widgets"))
	if diff := cmp.Diff(asJSON(t, widgetSchema), asJSON(t, v.Schema())); diff != "" {
		t.Errorf("the kind's own schema was changed: %s", diff)
	}
}

func TestCustomSchemaV2(t *testing.T) {
	t.Parallel()
	object := getV2(t, fewService(t)).Definitions["dev.exeunt.example.v1.Widget"]
	const want = `{
		"type": "object",
		"required": ["size"],
		"properties": {
			"size": {"type": "integer", "format": "int32", "minimum": 1},
			"maybe": {},
			"port": {"x-kubernetes-int-or-string": true},
			"free": {"x-kubernetes-preserve-unknown-fields": true},
			"rows": {"x-kubernetes-preserve-unknown-fields": true},
			"choice": {"type": "string", "enum": ["a", "b"]},
			"parts": {
				"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
				"items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
			},
			"labels": {"type": "object", "additionalProperties": {}}
		},
		"x-kubernetes-validations": [{"rule": "self.size > 0"}]
	}`
	if diff := cmp.Diff(asJSON(t, want), asJSON(t, object.Properties["spec"])); diff != "" {
		t.Errorf("spec: %s", diff)
	}
}

func TestSchemaThatAllowsEverything(t *testing.T) {
	t.Parallel()
	free := &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}, Description: "Anything."}}
	free.AddExtension(extPreserve, true)
	s := New(kind.NewRegistry([]*kind.Kind{
		newKind(gvk("free.exeunt.dev", "v1", "Thing"), "things", func(_ *kind.Kind, v *kind.Version) { v.Schema = kind.SchemaOf(free) }),
		newKind(gvk("free.exeunt.dev", "v1", "Bare"), "bares", nil),
	}), "v0.1.0")
	v2 := getV2(t, s).Definitions
	for _, name := range []string{"Thing", "Bare"} {
		d := v2["dev.exeunt.free.v1."+name]
		if !d.Type.Contains("object") || len(d.Properties) != 0 || d.Description != "" || len(d.Extensions) != 1 || d.Extensions[extGVK] == nil {
			t.Errorf("v2 of %s is %v", name, asJSON(t, d))
		}
	}
	v3 := getV3(t, s, schema.GroupVersion{Group: "free.exeunt.dev", Version: "v1"}).Components.Schemas
	if got := v3["dev.exeunt.free.v1.Thing"]; len(got.Properties) != 3 {
		t.Errorf("v3 of Thing is %v", asJSON(t, got))
	}
	if len(free.Properties) != 0 || len(free.Extensions) != 1 {
		t.Errorf("the kind's own schema was changed: %v", asJSON(t, free))
	}
}

func TestBrokenSchemaHarmsOnlyItself(t *testing.T) {
	t.Parallel()
	broken := spec.RefSchema("#/components/schemas/nowhere")
	s := New(kind.NewRegistry(append(fewKinds(t), newKind(
		gvk("broken.exeunt.dev", "v1", "Thing"), "things", func(_ *kind.Kind, v *kind.Version) { v.Schema = kind.SchemaOf(broken) },
	))), "v0.1.0")
	for name := range readIndex(t, s) { // which builds no document, so that it has the broken one too
		if name != "apis/broken.exeunt.dev/v1" && get(t, s, "/openapi/v3/"+name) == nil {
			t.Errorf("%s has no document", name)
		}
	}
	if w := ask(s, "/openapi/v3/apis/broken.exeunt.dev/v1"); w.Code != 500 {
		t.Errorf("the broken group answers %d", w.Code)
	}
	if _, ok := getV2(t, s).Definitions["dev.exeunt.example.v1.Widget"]; !ok {
		t.Error("v2 lacks a sound kind")
	}
}

func TestModelName(t *testing.T) {
	t.Parallel()
	for want, kind := range map[string]schema.GroupVersionKind{
		"dev.exeunt.example.v1.Widget": widgetGVK,
		"single.v2.Thing":              gvk("single", "v2", "Thing"),
		"v1.Thing":                     gvk("", "v1", "Thing"),
	} {
		if got := modelName(kind); got != want {
			t.Errorf("%s is named %s, want %s", kind, got, want)
		}
	}
}

// TestKindWithoutBuiltinList has a kind that Kubernetes never lists.
func TestKindWithoutBuiltinList(t *testing.T) {
	t.Parallel()
	s := New(kind.NewRegistry([]*kind.Kind{newKind(gvk("", "v1", "Binding"), "bindings", nil)}), "v0.1.0")
	schemas := getV3(t, s, schema.GroupVersion{Version: "v1"}).Components.Schemas
	if schemas["io.k8s.api.core.v1.Binding"] == nil || schemas["v1.BindingList"] == nil {
		t.Errorf("%d definitions, without Binding or its list", len(schemas))
	}
}
