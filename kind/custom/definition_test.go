package custom

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"github.com/exeunt/exeunt/object"
)

func TestDefinition(t *testing.T) {
	t.Parallel()
	k := Definition()
	if k.Storage != "customresourcedefinitions.apiextensions.k8s.io" || k.Namespaced ||
		!reflect.DeepEqual(k.ShortNames, []string{"crd", "crds"}) || !reflect.DeepEqual(k.Categories, []string{"api-extensions"}) ||
		!reflect.DeepEqual(k.Rules.DeleteFinalizers, []string{"customresourcecleanup.apiextensions.k8s.io"}) {
		t.Errorf("kind = %+v", k)
	}
	v := k.Versions[0]
	crd := create(t, widgets)
	crd.UID = "u1"
	body, err := v.Encode(crd)
	if err != nil {
		t.Fatal(err)
	}
	back, err := v.Decode(body, "5")
	if err != nil {
		t.Fatal(err)
	}
	want := crd.DeepCopy()
	want.ResourceVersion = "5"
	want.SetGroupVersionKind(v.GVK)
	if diff := cmp.Diff(want, back); diff != "" {
		t.Errorf("stored and read back (-want +got):\n%s", diff)
	}
	if _, err := v.Decode([]byte("{"), "5"); err == nil {
		t.Error("a broken body was decoded")
	}
}

// Every media type encodes and decodes a definition without loss.
func TestDefinitionWire(t *testing.T) {
	t.Parallel()
	v := Definition().Versions[0]
	crd := create(t, widgets)
	crd.SetGroupVersionKind(v.GVK)
	seen := map[string]bool{}
	for _, info := range v.Wire.Serializer.SupportedMediaTypes() {
		var buf bytes.Buffer
		if err := v.Wire.Serializer.EncoderForVersion(info.Serializer, v.GVK.GroupVersion()).Encode(crd, &buf); err != nil {
			t.Fatalf("%s: %v", info.MediaType, err)
		}
		back, _, err := v.Wire.Serializer.DecoderToVersion(info.Serializer, v.GVK.GroupVersion()).Decode(buf.Bytes(), nil, v.New())
		if err != nil {
			t.Fatalf("%s: %v", info.MediaType, err)
		}
		back.GetObjectKind().SetGroupVersionKind(v.GVK)
		if diff := cmp.Diff(crd, back); diff != "" {
			t.Errorf("%s (-sent +received):\n%s", info.MediaType, diff)
		}
		seen[info.MediaType] = true
	}
	if !seen[runtime.ContentTypeJSON] || !seen[runtime.ContentTypeYAML] || !seen[runtime.ContentTypeProtobuf] {
		t.Errorf("media types = %v", seen)
	}
}

func TestDefinitionDefaults(t *testing.T) {
	t.Parallel()
	crd := parse(t, plain)
	if n := crd.Spec.Names; n.Singular != "gear" || n.ListKind != "GearList" {
		t.Errorf("names = %+v", n)
	}
	if c := crd.Spec.Conversion; c == nil || c.Strategy != apiextensionsv1.NoneConverter {
		t.Errorf("conversion = %+v", c)
	}
	_, err := decodeRequest(Definition().Versions[0], edit(t, plain, "scope:", "scoop: 1\n  scope:"), true)
	if err == nil || !strings.Contains(err.Error(), `unknown field "spec.scoop"`) {
		t.Errorf("strict error = %v", err)
	}
}

func TestDefinitionValidate(t *testing.T) {
	t.Parallel()
	const base = "spec.validation.openAPIV3Schema" // one schema for all versions: where the library looks for it
	tests := []struct {
		name          string
		text          string
		field, detail string
	}{
		{"wrong name", edit(t, plain, "name: gears.example.com", "name: gear.example.com"), "metadata.name", `must be spec.names.plural+"."+spec.group`},
		{"protected group", strings.ReplaceAll(plain, "example.com", "gears.k8s.io"), "metadata.annotations[api-approved.kubernetes.io]", "protected groups must have approval annotation"},
		{"no versions", plain[:strings.Index(plain, "  versions:")], "spec.versions", "must have exactly one version marked as storage version"},
		{"no storage version", edit(t, plain, "storage: true", "storage: false"), "spec.versions", "must have exactly one version marked as storage version"},
		{"duplicate versions", plain + strings.Replace(plain[strings.Index(plain, "  - name: v1"):], "storage: true", "storage: false", 1), "spec.versions", "must contain unique version names"},
		{"no schema", plain[:strings.Index(plain, "    schema:")], "spec.versions[0].schema.openAPIV3Schema", "Required value"},
		{"selectable fields without a schema", plain[:strings.Index(plain, "    schema:")] + "    selectableFields: [{jsonPath: .spec.teeth}]\n", "spec.versions[0].schema.openAPIV3Schema", "selectableFields need a schema"},
		{"selectable fields and half a schema", plain[:strings.Index(plain, "    schema:")] + "    schema: {}\n    selectableFields: [{jsonPath: .spec.teeth}]\n", "spec.versions[0].schema.openAPIV3Schema", "selectableFields need a schema"},
		{"column that is no path", plain + "    additionalPrinterColumns: [{name: x, type: string, jsonPath: '.a[?(@.b=='}]\n", "spec.versions[0].additionalPrinterColumns[0].jsonPath", "unterminated"},
		{"column of an unknown type", plain + "    additionalPrinterColumns: [{name: x, type: colour, jsonPath: .a}]\n", "spec.additionalPrinterColumns[0].type", "must be one of"},
		{"two storage versions", plain + strings.Replace(plain[strings.Index(plain, "  - name: v1"):], "name: v1", "name: v2", 1), "spec.versions", "must have exactly one version marked as storage version"},
		{"scale without a status", plain + "    subresources: {scale: {specReplicasPath: .spec.teeth}}\n", "spec.subresources.scale.statusReplicasPath", "Required value"},
		{"scale elsewhere", plain + "    subresources: {scale: {specReplicasPath: .spec.teeth, statusReplicasPath: .spec.teeth}}\n", "spec.subresources.scale.statusReplicasPath", "should be a json path under .status"},
		{"selectable fields and a schema that refers", plain[:strings.Index(plain, "    schema:")] + "    schema: {openAPIV3Schema: {type: object, properties: {a: {$ref: '#/b'}}}}\n    selectableFields: [{jsonPath: .spec.teeth}]\n", "spec.versions[0].schema.openAPIV3Schema", "not structural"},
		{"selectable field that is not there", plain + "    selectableFields: [{jsonPath: .spec.none}]\n", "spec.selectableFields[0].jsonPath", "does not refer to a valid field"},
		{"rule that costs too much", edit(t, plain, "teeth: {type: integer}", "teeth: {type: array, items: {type: array, items: {type: string}}, x-kubernetes-validations: [{rule: 'self.all(a, a.all(b, self.all(c, c.all(d, d == b))))'}]}"), base + ".properties[spec].properties[teeth].x-kubernetes-validations[0].rule", "exceeds budget"},
		{"kept unknown fields of old", edit(t, plain, "scope: Cluster", "scope: Cluster\n  preserveUnknownFields: true"), "spec.preserveUnknownFields", "cannot set to true"},
		{"not structural", edit(t, plain, "teeth: {type: integer}", "teeth: {}"), base + ".properties[spec].properties[teeth].type", "must not be empty"},
		{"reference", edit(t, plain, "teeth: {type: integer}", "teeth: {type: integer, $ref: '#/x'}"), base + ".properties[spec].properties[teeth].$ref", "Forbidden"},
		{"default that does not fit", edit(t, plain, "teeth: {type: integer}", "teeth: {type: integer, default: many}"), base + ".properties[spec].properties[teeth].default", "must be of type integer"},
		{"rule that does not compile", edit(t, plain, "spec: {type: object,", "spec: {type: object, x-kubernetes-validations: [{rule: 'self.teeth >'}],"), base + ".properties[spec].x-kubernetes-validations[0].rule", "compilation failed"},
		{"rule on an unknown field", edit(t, plain, "spec: {type: object,", "spec: {type: object, x-kubernetes-validations: [{rule: 'self.holes > 1'}],"), base + ".properties[spec].x-kubernetes-validations[0].rule", "undefined field 'holes'"},
		{"scope", edit(t, plain, "scope: Cluster", "scope: World"), "spec.scope", "Unsupported value"},
		{"kind in lower case", edit(t, plain, "kind: Gear}", "kind: gear gear}"), "spec.names.kind", "Invalid value"},
		{"webhook", edit(t, plain, "scope: Cluster", "scope: Cluster\n  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v7], clientConfig: {url: 'https://example.com'}}}"), "spec.conversion.conversionReviewVersions", "must include at least one of v1, v1beta1"},
		{"empty", "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a}", "spec.group", "Required value"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			crd := parse(t, tt.text)
			s := Definition().Versions[0].Strategy
			if _, errs := s.Create(t.Context(), crd); !has(errs, tt.field, tt.detail) {
				t.Errorf("errors = %v, want %s: %s", errs, tt.field, tt.detail)
			}
			crd.Status, _ = Accept(crd, nil, now)
			_, _ = New(crd, nil) // it may be refused, it must not panic
		})
	}
	if _, errs := (definitionStrategy{}).Create(t.Context(), &metav1.Status{}); len(errs) != 1 {
		t.Errorf("a Status as definition: %v", errs)
	}
}

func TestDefinitionPrepareForCreate(t *testing.T) {
	t.Parallel()
	crd := parse(t, plain)
	crd.Status = create(t, widgets).Status
	crd.Generation = 9
	Definition().Versions[0].Strategy.Create(t.Context(), crd)
	want := apiextensionsv1.CustomResourceDefinitionStatus{StoredVersions: []string{"v1"}}
	if diff := cmp.Diff(want, crd.Status); diff != "" || crd.Generation != 1 {
		t.Errorf("generation %d, status (-want +got):\n%s", crd.Generation, diff)
	}
}

func TestDefinitionUpdate(t *testing.T) {
	t.Parallel()
	v := Definition().Versions[0]
	old := create(t, plain)
	old.ResourceVersion = "1"
	tests := []struct {
		name       string
		change     func(*apiextensionsv1.CustomResourceDefinition)
		generation int64
		stored     []string
		field      string
	}{
		{"labels", func(c *apiextensionsv1.CustomResourceDefinition) { c.Labels = map[string]string{"a": "b"} }, 1, []string{"v1"}, ""},
		{"status is not the user's", func(c *apiextensionsv1.CustomResourceDefinition) {
			c.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
		}, 1, []string{"v1"}, ""},
		{"short name", func(c *apiextensionsv1.CustomResourceDefinition) { c.Spec.Names.ShortNames = []string{"g"} }, 2, []string{"v1"}, ""},
		{"new storage version", func(c *apiextensionsv1.CustomResourceDefinition) {
			c.Spec.Versions = append(c.Spec.Versions, *c.Spec.Versions[0].DeepCopy())
			c.Spec.Versions[1].Name = "v2"
			c.Spec.Versions[0].Storage = false
		}, 2, []string{"v1", "v2"}, ""},
		{"stored version taken away", func(c *apiextensionsv1.CustomResourceDefinition) { c.Spec.Versions[0].Name = "v2" },
			0, nil, "status.storedVersions[0]"},
		{"scope is immutable once established", func(c *apiextensionsv1.CustomResourceDefinition) {
			c.Spec.Scope = apiextensionsv1.NamespaceScoped
		}, 0, nil, "spec.scope"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			crd := old.DeepCopy()
			tt.change(crd)
			_, errs := v.Strategy.Update(t.Context(), crd, old)
			if (tt.field == "" && len(errs) > 0) || (tt.field != "" && !has(errs, tt.field, "")) {
				t.Errorf("errors = %v, want one on %q", errs, tt.field)
			}
			if tt.field != "" {
				return
			}
			if crd.Generation != tt.generation || !reflect.DeepEqual(crd.Status.StoredVersions, tt.stored) || !Established(crd) {
				t.Errorf("generation %d, stored %v", crd.Generation, crd.Status.StoredVersions)
			}
		})
	}
}

func TestDefinitionStatus(t *testing.T) {
	t.Parallel()
	v := Definition().Versions[0]
	old := create(t, plain)
	old.ResourceVersion = "1"
	crd := old.DeepCopy()
	crd.Spec.Scope = apiextensionsv1.NamespaceScoped
	crd.Finalizers = []string{"example.com/held"}
	crd.Status.Conditions = nil
	if _, errs := v.Status.Update(t.Context(), crd, old); len(errs) > 0 {
		t.Fatal(errs)
	}
	if crd.Spec.Scope != apiextensionsv1.ClusterScoped || Established(crd) || len(crd.Finalizers) != 1 {
		t.Errorf("scope %s, established %v, finalizers %v", crd.Spec.Scope, Established(crd), crd.Finalizers)
	}
	crd.Status.AcceptedNames.Kind = "no kind"
	if _, errs := v.Status.Update(t.Context(), crd, old); !has(errs, "status.acceptedNames.kind", "") {
		t.Errorf("errors = %v, want one on status.acceptedNames.kind", errs)
	}
}

func TestDefinitionWarnings(t *testing.T) {
	t.Parallel()
	v := Definition().Versions[0]
	crd := create(t, edit(t, plain, "teeth: {type: integer}", "teeth: {type: string, format: molar}"))
	want := []string{`unrecognized format "molar"`}
	if got, _ := v.Strategy.Create(t.Context(), crd.DeepCopy()); !reflect.DeepEqual(got, want) {
		t.Errorf("on create: %v", got)
	}
	if got, _ := v.Strategy.Update(t.Context(), crd, crd.DeepCopy()); len(got) != 0 {
		t.Errorf("on update without change: %v", got)
	}
}

func TestDefinitionTable(t *testing.T) {
	t.Parallel()
	v := Definition().Versions[0]
	crd := create(t, widgets)
	crd.CreationTimestamp = at(0)
	list := &apiextensionsv1.CustomResourceDefinitionList{Items: []apiextensionsv1.CustomResourceDefinition{*crd}}
	list.ResourceVersion = "3"
	table, err := v.Table.ConvertToTable(t.Context(), list, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := headers(table)[:4]; !reflect.DeepEqual(got, []string{"Name", "Scope", "Versions", "Created At"}) {
		t.Errorf("columns = %v", got)
	}
	want := []any{"widgets.example.com", "Namespaced", "v1(storage),v1beta1", "2026-09-01T12:00:00Z", "example.com", "Widget", "wd", true}
	if diff := cmp.Diff(want, table.Rows[0].Cells); diff != "" || table.ResourceVersion != "3" {
		t.Errorf("row (-want +got):\n%s", diff)
	}
	if _, err := v.Table.ConvertToTable(t.Context(), &metav1.Status{}, nil); err == nil {
		t.Error("a Status has a row")
	}
}

// Server-side apply of a definition keeps the fields of two managers apart, if they manage
// different versions.
func TestDefinitionApply(t *testing.T) {
	t.Parallel()
	v := Definition().Versions[0]
	w := v.Wire
	fm, err := managedfields.NewDefaultFieldManager(w.TypeConverter, w.Convertor, w.Defaulter, w.Creater, v.GVK, v.GVK.GroupVersion(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	crd := create(t, plain)
	crd.SetGroupVersionKind(v.GVK)
	live := fm.UpdateNoErrors(v.New(), crd, "one").(*apiextensionsv1.CustomResourceDefinition)
	if len(live.ManagedFields) != 1 {
		t.Fatalf("managed fields = %v", live.ManagedFields)
	}
	if got := string(live.ManagedFields[0].FieldsV1.GetRawBytes()); !strings.Contains(got, `"f:scope"`) {
		t.Errorf("fields = %s", got)
	}
}

func TestDefinitionIsRaw(t *testing.T) {
	t.Parallel()
	v := Definition().Versions[0]
	crd := create(t, widgets)
	body, err := v.Encode(crd)
	if err != nil {
		t.Fatal(err)
	}
	spliced := object.AppendWire(nil, object.WirePrefix(v.GVK), body, 5)
	crd.ResourceVersion = "5"
	var buf bytes.Buffer
	json := v.Wire.Serializer.SupportedMediaTypes()[0].Serializer
	if err := v.Wire.Serializer.EncoderForVersion(json, v.GVK.GroupVersion()).Encode(crd, &buf); err != nil {
		t.Fatal(err)
	}
	got, err := decodeRequest(v, string(spliced), false)
	if err != nil {
		t.Fatal(err)
	}
	want, err := decodeRequest(v, buf.String(), false)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("encoded and spliced differ (-encoded +spliced):\n%s", diff)
	}
}
