package custom

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
)

func TestRequest(t *testing.T) {
	t.Parallel()
	k := serve(t, widgets)
	tests := []struct {
		name    string
		version string
		text    string
		want    map[string]any
	}{
		{"defaults", "v1", "spec: {size: 3}",
			map[string]any{"size": int64(3), "color": "red", "limit": int64(10)}},
		{"unknown fields are pruned", "v1", "spec: {size: 3, limit: 4, color: green, colour: red}\nextra: 1",
			map[string]any{"size": int64(3), "color": "green", "limit": int64(4)}},
		{"unless the schema keeps them", "v1", "spec: {size: 3, limit: 4, color: green, free: {a: {b: 1}}}",
			map[string]any{"size": int64(3), "color": "green", "limit": int64(4), "free": map[string]any{"a": map[string]any{"b": int64(1)}}}},
		{"each version has its own defaults", "v1beta1", "spec: {size: 3, limit: 4}",
			map[string]any{"size": int64(3)}},
		{"an embedded object's metadata is pruned", "v1",
			"spec: {size: 3, limit: 4, color: green, template: {apiVersion: v1, kind: Pod, metadata: {name: a, nonsense: 1}, spec: {x: 1}}}",
			map[string]any{"size": int64(3), "color": "green", "limit": int64(4), "template": map[string]any{
				"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "a"}, "spec": map[string]any{"x": int64(1)},
			}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			u := request(t, pick(t, k, tt.version), widget(tt.version, tt.text))
			if diff := cmp.Diff(tt.want, u.Object["spec"]); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
			if _, ok := u.Object["extra"]; ok {
				t.Error("an unknown field at the root was kept")
			}
		})
	}
}

func TestStrictRequest(t *testing.T) {
	t.Parallel()
	v := pick(t, serve(t, widgets), "v1")
	text := widget("v1", "spec: {size: 3, colour: red, ports: [{name: a, prot: 1}], template: {apiVersion: v1, kind: Pod, metadata: {nonsense: 1}}}\nextra: 1\nextra: 2")
	text = strings.Replace(text, "namespace: default", "namespace: default, nonsense: 1", 1)
	obj, err := decodeRequest(v, text, true)
	strict, ok := runtime.AsStrictDecodingError(err)
	if !ok || obj == nil {
		t.Fatalf("got %v, %v, want an object and a strict error", obj, err)
	}
	var got []string
	for _, e := range strict.Errors() {
		got = append(got, e.Error())
	}
	slices.Sort(got)
	want := []string{
		`unknown field "extra"`,
		`unknown field "metadata.nonsense"`,
		`unknown field "spec.colour"`,
		`unknown field "spec.ports[0].prot"`,
		`unknown field "spec.template.metadata.nonsense"`,
		`yaml: unmarshal errors: line 6: key "extra" already set in map`,
	}
	for i := range got {
		got[i] = strings.Join(strings.Fields(got[i]), " ")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("strict errors (-want +got):\n%s", diff)
	}
	if obj, err := decodeRequest(v, widget("v1", "spec: {size: 3}"), true); err != nil || obj == nil {
		t.Errorf("a good object: %v, %v", obj, err)
	}
}

func TestBadRequest(t *testing.T) {
	t.Parallel()
	v := pick(t, serve(t, widgets), "v1")
	for _, text := range []string{
		"apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: 1}",
		"apiVersion: example.com/v1\nkind: Widget\nmetadata: []",
		"apiVersion: a/b/c\nkind: Widget",
		"apiVersion: 1\nkind: Widget",
		"- 1",
		"{",
		widget("v1", "spec: {size: 1, template: {apiVersion: v1, kind: Pod, metadata: {labels: 1}}}"),
	} {
		if obj, err := decodeRequest(v, text, false); err == nil {
			t.Errorf("%q was read as %v", text, obj)
		}
	}
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	k := serve(t, widgets)
	v1, beta := pick(t, k, "v1"), pick(t, k, "v1beta1")
	u := request(t, v1, widget("v1", "spec: {size: 3}"))
	media := v1.Wire.Serializer.SupportedMediaTypes()
	encode := func(info runtime.SerializerInfo, obj runtime.Object) (string, error) {
		var buf bytes.Buffer
		err := v1.Wire.Serializer.EncoderForVersion(info.Serializer, beta.GVK.GroupVersion()).Encode(obj, &buf)
		return buf.String(), err
	}
	text, err := encode(media[0], u)
	if err != nil || !strings.Contains(text, `"apiVersion":"example.com/v1beta1"`) {
		t.Errorf("JSON of another version = %s, %v", text, err)
	}
	text, err = encode(media[1], u)
	if err != nil || !strings.Contains(text, "apiVersion: example.com/v1beta1\n") {
		t.Errorf("YAML = %s, %v", text, err)
	}
	for _, info := range media { // protobuf included
		if text, err := encode(info, &metav1.Status{Message: "hello"}); err != nil || !strings.Contains(text, "hello") {
			t.Errorf("%s of a Status = %q, %v", info.MediaType, text, err)
		}
	}
	if _, err := encode(media[2], u); err == nil {
		t.Error("a widget was encoded as protobuf")
	}
	for _, info := range v1.Wire.StandardSerializers {
		if info.MediaType == runtime.ContentTypeProtobuf {
			t.Error("protobuf is offered for widgets")
		}
	}
	if len(v1.Wire.StandardSerializers) != 2 || !v1.Wire.Custom {
		t.Errorf("wire = %+v", v1.Wire)
	}
}

// The field manager needs the type converter: two managers must each be able to own one item of
// a list.
func TestApply(t *testing.T) {
	t.Parallel()
	v := pick(t, serve(t, widgets), "v1")
	w := v.Wire
	fm, err := managedfields.NewDefaultCRDFieldManager(w.TypeConverter, w.Convertor, w.Defaulter, w.Creater, v.GVK, v.GVK.GroupVersion(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	apply := func(live runtime.Object, manager, spec string) runtime.Object {
		t.Helper()
		out, err := fm.Apply(live, request(t, v, widget("v1", spec)), manager, false)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	obj := apply(v.New(), "one", "spec: {size: 3, ports: [{name: a}]}")
	obj = apply(obj, "two", "spec: {size: 3, ports: [{name: b, port: 81}]}")
	ports, _, err := unstructured.NestedSlice(obj.(*unstructured.Unstructured).Object, "spec", "ports")
	if err != nil || len(ports) != 2 {
		t.Errorf("ports = %v, %v, want one of each manager", ports, err)
	}
	_, err = fm.Apply(obj, request(t, v, widget("v1", "spec: {size: 4}")), "three", false)
	if err == nil || !strings.Contains(err.Error(), "conflict") {
		t.Errorf("taking over a field: %v, want a conflict", err)
	}
}

func TestSchema(t *testing.T) {
	t.Parallel()
	v := pick(t, serve(t, widgets), "v1")
	s := v.Schema()
	var names []string
	for name := range s.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	if !reflect.DeepEqual(names, []string{"apiVersion", "kind", "metadata", "spec", "status"}) {
		t.Errorf("properties = %v", names)
	}
	meta := s.Properties["metadata"]
	if got := meta.Ref.String(); got != "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta" {
		t.Errorf("metadata = %q", got)
	}
	gvk, _ := s.Extensions["x-kubernetes-group-version-kind"].([]any)
	if diff := cmp.Diff([]any{map[string]any{"group": "example.com", "version": "v1", "kind": "Widget"}}, gvk); diff != "" {
		t.Errorf("kind (-want +got):\n%s", diff)
	}
	template := s.Properties["spec"].Properties["template"]
	if !reflect.DeepEqual(template.Required, []string{"kind", "apiVersion"}) {
		t.Errorf("embedded object requires %v", template.Required)
	}
	if got := s.Properties["spec"].Properties["color"].Default; got != "red" {
		t.Errorf("default = %v", got)
	}
}
