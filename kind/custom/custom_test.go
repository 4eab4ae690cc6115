package custom

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
)

func TestNew(t *testing.T) {
	t.Parallel()
	k := serve(t, widgets)
	got := *k
	got.Versions = nil
	want := kind.Kind{
		Group: "example.com", Name: "Widget", ListName: "WidgetList", Plural: "widgets", Singular: "widget",
		ShortNames: []string{"wd"}, Categories: []string{"all"}, Namespaced: true, Storage: "widgets.example.com",
		Definition: "widgets.example.com", Generation: 1, StoredAs: "v1", Fingerprint: k.Fingerprint,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("kind = %+v, want %+v", got, want)
	}
	if len(k.Versions) != 2 || k.Versions[0].GVK.Version != "v1" || k.Versions[1].GVK.Version != "v1beta1" {
		t.Fatalf("versions are not v1, v1beta1: %v", k.Versions)
	}
	v1, beta := k.Versions[0], k.Versions[1]
	if want := (&kind.Scale{SpecReplicasPath: "spec.replicas", StatusReplicasPath: "status.replicas", LabelSelectorPath: "status.selector"}); !reflect.DeepEqual(v1.Scale, want) {
		t.Errorf("scale = %+v", v1.Scale)
	}
	if v1.Status == nil || beta.Status != nil || beta.Scale != nil {
		t.Error("subresources are not those of the version")
	}
	if beta.Warning != "example.com/v1beta1 Widget is deprecated; use example.com/v1 Widget" || v1.Warning != "" {
		t.Errorf("warnings = %q, %q", v1.Warning, beta.Warning)
	}
	if !reflect.DeepEqual(v1.SelectableFields, []string{"spec.color"}) || beta.SelectableFields != nil {
		t.Errorf("selectable fields = %v, %v", v1.SelectableFields, beta.SelectableFields)
	}
	if gvk := v1.NewList().GetObjectKind().GroupVersionKind(); gvk.Kind != "WidgetList" {
		t.Errorf("list kind = %v", gvk)
	}
	if !v1.Strategy.NamespaceScoped() || v1.Strategy.AllowCreateOnUpdate(t.Context()) {
		t.Error("strategy says the wrong scope or lets a PUT create")
	}
	if got := v1.ResetFields["example.com/v1"].String(); got != "status" && got != ".status" {
		t.Errorf("reset fields = %q", got)
	}
	if len(v1.StatusResetFields) != 1 || len(beta.ResetFields) != 0 {
		t.Errorf("reset fields of status = %v, of v1beta1 = %v", v1.StatusResetFields, beta.ResetFields)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		text string
		want string
		keep bool // do not accept its names
	}{
		{"names not accepted", plain, "names have not been accepted", true},
		{"no schema", edit(t, plain, "schema:", "ignored:"), "has no schema", false},
		{"no storage version", edit(t, plain, "storage: true", "storage: false"), "no storage version", false},
		{"unstructured schema", edit(t, plain, "teeth: {type: integer}", "teeth: {type: integer, $ref: '#/x'}"), "not structural", false},
		{"broken column", edit(t, plain, "storage: true", "storage: true\n    additionalPrinterColumns: [{name: a, type: string, jsonPath: '.a['}]"), "column", false},
		{"preserveUnknownFields", edit(t, plain, "scope: Cluster", "scope: Cluster\n  preserveUnknownFields: true"), "must be false", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			crd := parse(t, tt.text)
			if !tt.keep {
				crd.Status, _ = Accept(crd, nil, now)
			}
			if _, err := New(crd, nil); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want one with %q", err, tt.want)
			}
		})
	}
}

func TestNewWhileDeleting(t *testing.T) {
	t.Parallel()
	crd := create(t, plain)
	deleted := at(0)
	crd.DeletionTimestamp = &deleted
	k, err := New(crd, nil)
	if err != nil {
		t.Fatal(err)
	}
	if k.Refuse != "create not allowed while custom resource definition is terminating" {
		t.Errorf("refuse = %q", k.Refuse)
	}
}

func TestNewServesNoVersion(t *testing.T) {
	t.Parallel()
	k := serve(t, edit(t, plain, "served: true", "served: false"))
	if len(k.Versions) != 0 || k.Storage != "gears.example.com" {
		t.Errorf("kind = %+v", k)
	}
}

func TestRaw(t *testing.T) {
	t.Parallel()
	second := `
  - name: v2
    served: true
    storage: false
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {teeth: {type: integer}}}
`
	tests := []struct {
		name       string
		text       string
		generation int64
		want       bool
	}{
		{"one version", plain, 1, true},
		{"equal versions", plain + second, 1, true},
		{"other schema", plain + edit(t, second, "teeth", "holes"), 1, false},
		{"defaults", edit(t, plain, "type: integer", "type: integer, default: 8"), 1, false},
		{"changed since it was created", plain, 2, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			crd := create(t, tt.text)
			crd.Generation = tt.generation
			k, err := New(crd, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range append(k.Versions, serveIn(t, NewCache(1), crd).Versions...) {
				if v.Raw != tt.want {
					t.Errorf("%s: raw = %v, want %v", v.GVK.Version, v.Raw, tt.want)
				}
			}
		})
	}
}

// The stored bytes of a raw version, with their head, must equal what a decode shows.
func TestRawIsWhatDecodeShows(t *testing.T) {
	t.Parallel()
	v := serve(t, plain).Versions[0]
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON([]byte(`{"apiVersion":"example.com/v1","kind":"Gear","metadata":{"name":"g","uid":"u1","generation":1,"creationTimestamp":"2026-09-01T12:00:00Z","labels":{"a":"b"}},"spec":{"teeth":12}}`)); err != nil {
		t.Fatal(err)
	}
	body, err := v.Encode(u)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := v.Decode(body, "7")
	if err != nil {
		t.Fatal(err)
	}
	shown, err := json.Marshal(decoded)
	if err != nil {
		t.Fatal(err)
	}
	var got, want map[string]any
	if err := json.Unmarshal(object.AppendWire(nil, object.WirePrefix(v.GVK), body, 7), &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(shown, &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spliced and decoded differ (-decoded +spliced):\n%s", diff)
	}
}

func TestStore(t *testing.T) {
	t.Parallel()
	k := serve(t, widgets)
	v1, beta := pick(t, k, "v1"), pick(t, k, "v1beta1")
	tests := []struct {
		name  string
		body  string
		read  *kind.Version
		wants map[string]any
	}{
		{"missing defaults are filled in on read", `{"metadata":{"name":"w","generation":1},"spec":{"size":3}}`, v1,
			map[string]any{"size": int64(3), "color": "red", "limit": int64(10)}},
		{"defaults inside lists", `{"metadata":{"name":"w"},"spec":{"size":3,"color":"green","limit":5,"ports":[{"name":"a"}]}}`, v1,
			map[string]any{"size": int64(3), "color": "green", "limit": int64(5), "ports": []any{map[string]any{"name": "a", "port": int64(80)}}}},
		{"fields of an older schema go", `{"metadata":{"name":"w"},"spec":{"size":3,"color":"green","limit":5,"gone":true}}`, v1,
			map[string]any{"size": int64(3), "color": "green", "limit": int64(5)}},
		{"another version shows only what it knows", `{"metadata":{"name":"w"},"spec":{"size":3,"limit":5,"legacy":"x"}}`, beta,
			map[string]any{"size": int64(3), "color": "red", "legacy": "x"}},
		{"nulls that may not be go", `{"metadata":{"name":"w"},"spec":{"size":3,"color":null,"limit":5,"replicas":null}}`, v1,
			map[string]any{"size": int64(3), "color": "red", "limit": int64(5)}},
		{"malformed metadata of an embedded object goes", `{"metadata":{"name":"w"},"spec":{"size":3,"color":"red","limit":5,"template":{"metadata":{"name":"a","labels":7}}}}`, v1,
			map[string]any{"size": int64(3), "color": "red", "limit": int64(5), "template": map[string]any{"metadata": map[string]any{"name": "a"}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			obj, err := tt.read.Decode([]byte(tt.body), "42")
			if err != nil {
				t.Fatal(err)
			}
			u := obj.(*unstructured.Unstructured)
			if diff := cmp.Diff(tt.wants, u.Object["spec"]); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
			if u.GroupVersionKind() != tt.read.GVK || u.GetResourceVersion() != "42" || u.GetName() != "w" {
				t.Errorf("head = %v %v %v", u.GroupVersionKind(), u.GetResourceVersion(), u.GetName())
			}
			marked, err := object.WithVersion([]byte(tt.body), "v1") // as a replica writes that converts by a webhook already
			if err != nil {
				t.Fatal(err)
			}
			again, err := tt.read.Decode(marked, "42")
			if diff := cmp.Diff(obj, again); diff != "" || err != nil {
				t.Errorf("with a mark of its version: %v (-without +with):\n%s", err, diff)
			}
		})
	}
}

func TestStoreWritesWhatTheStorageVersionKnows(t *testing.T) {
	t.Parallel()
	k := serve(t, widgets)
	beta := pick(t, k, "v1beta1")
	u := request(t, beta, widget("v1beta1", "spec: {size: 3, legacy: x}"))
	before := u.DeepCopy()
	body, err := beta.Encode(u)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(body), `{"metadata":{"name":"w","namespace":"default"},"spec":{"size":3}}`; got != want {
		t.Errorf("body = %s, want %s", got, want)
	}
	if diff := cmp.Diff(before, u); diff != "" {
		t.Errorf("encoding changed the object:\n%s", diff)
	}
	if _, err := beta.Encode(&metav1.Status{}); err == nil {
		t.Error("a Status was encoded as a widget")
	}
	for _, broken := range []string{"", "{", `{"metadata":{"name":1}}`, `[]`} {
		if obj, err := beta.Decode([]byte(broken), "1"); err == nil && obj.(*unstructured.Unstructured).GetName() != "" {
			t.Errorf("%q was decoded to %v", broken, obj)
		}
	}
}

func TestConvert(t *testing.T) {
	t.Parallel()
	k := serve(t, widgets)
	v1, beta := pick(t, k, "v1"), pick(t, k, "v1beta1")
	u := request(t, v1, widget("v1", "spec: {size: 3}"))
	out, err := v1.Wire.Convertor.ConvertToVersion(u, beta.GVK.GroupVersion())
	if err != nil {
		t.Fatal(err)
	}
	if out.GetObjectKind().GroupVersionKind() != beta.GVK || u.GroupVersionKind() != v1.GVK {
		t.Errorf("converted %v to %v", u.GroupVersionKind(), out.GetObjectKind().GroupVersionKind())
	}
	into := beta.New()
	if err := v1.Wire.Convertor.Convert(u, into, nil); err != nil {
		t.Fatal(err)
	}
	if got := into.(*unstructured.Unstructured); got.GroupVersionKind() != beta.GVK || got.GetName() != "w" || u.GroupVersionKind() != v1.GVK {
		t.Errorf("converted into %v", got)
	}
	list := v1.NewList().(*unstructured.UnstructuredList)
	list.Items = []unstructured.Unstructured{*u}
	out, err = v1.Wire.Convertor.ConvertToVersion(list, beta.GVK.GroupVersion())
	if err != nil {
		t.Fatal(err)
	}
	if got := out.(*unstructured.UnstructuredList).Items[0].GroupVersionKind(); got != beta.GVK {
		t.Errorf("item converted to %v", got)
	}
	if _, err := v1.Wire.Convertor.ConvertToVersion(u, schema.GroupVersion{Group: "example.com", Version: "v9"}); err == nil {
		t.Error("converted to a version that is not declared")
	}
	if err := v1.Wire.Convertor.Convert(&metav1.Status{}, into, nil); err == nil {
		t.Error("converted a Status")
	}
}

func TestConvertFieldLabel(t *testing.T) {
	t.Parallel()
	k := serve(t, widgets)
	gear := serve(t, plain).Versions[0]
	tests := []struct {
		v     *kind.Version
		label string
		ok    bool
	}{
		{pick(t, k, "v1"), "metadata.name", true},
		{pick(t, k, "v1"), "metadata.namespace", true},
		{pick(t, k, "v1"), "spec.color", true},
		{pick(t, k, "v1"), "spec.size", false},
		{pick(t, k, "v1beta1"), "spec.color", false},
		{gear, "metadata.namespace", false},
	}
	for _, tt := range tests {
		_, value, err := tt.v.Wire.Convertor.ConvertFieldLabel(tt.v.GVK, tt.label, "x")
		if (err == nil) != tt.ok || (tt.ok && value != "x") {
			t.Errorf("%v %s: %q, %v", tt.v.GVK, tt.label, value, err)
		}
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	v := pick(t, serve(t, widgets), "v1")
	list := v.NewList().(*unstructured.UnstructuredList)
	list.SetResourceVersion("9")
	list.Items = []unstructured.Unstructured{*request(t, v, widget("v1", "spec: {size: 3}"))}
	table, err := v.Table.ConvertToTable(t.Context(), list, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := headers(table); !reflect.DeepEqual(got, []string{"Name", "Color", "Size"}) {
		t.Errorf("columns = %v", got)
	}
	if got := table.Rows[0].Cells; !reflect.DeepEqual(got, []any{"w", "red", int64(3)}) || table.ResourceVersion != "9" {
		t.Errorf("row = %v at %s", got, table.ResourceVersion)
	}
	gear := serve(t, plain).Versions[0]
	table, err = gear.Table.ConvertToTable(t.Context(), gear.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := headers(table); !reflect.DeepEqual(got, []string{"Name", "Age"}) {
		t.Errorf("default columns = %v", got)
	}
}

func headers(table *metav1.Table) []string {
	var out []string
	for _, c := range table.ColumnDefinitions {
		out = append(out, c.Name)
	}
	return out
}

var _ runtime.NegotiatedSerializer = (*serializer)(nil)
