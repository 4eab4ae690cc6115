package openapi

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/schemamutation"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/exeunt/exeunt/kind"
)

// The extensions that this package reads or writes.
const (
	extGVK        = "x-kubernetes-group-version-kind"
	extAction     = "x-kubernetes-action"
	extV2Schema   = "x-kubernetes-v2-schema"
	extPreserve   = "x-kubernetes-preserve-unknown-fields"
	extSelectable = "x-kubernetes-selectable-fields"
)

// The names of definitions that paths and custom kinds refer to.
const (
	metaV1         = "io.k8s.apimachinery.pkg.apis.meta.v1."
	nameObjectMeta = metaV1 + "ObjectMeta"
	nameListMeta   = metaV1 + "ListMeta"
	nameTypeMeta   = metaV1 + "TypeMeta"
	namePartial    = metaV1 + "PartialObjectMetadata"
	nameStatus     = metaV1 + "Status"
	namePatch      = metaV1 + "Patch"
	nameScale      = "io.k8s.api.autoscaling.v1.Scale"
)

// The prefix of references, in each version of OpenAPI.
const (
	prefixV2 = "#/definitions/"
	prefixV3 = "#/components/schemas/"
)

// packed are the definitions of the built-in kinds and of the types that they refer to:
// a gzipped JSON object of schemas by name, in v3 form.
//
//go:embed builtin.json.gz
var packed []byte

// definitions are schemas by name, in v3 form.
type definitions map[string]*spec.Schema

// loadBuiltin reads the embedded definitions. They take about ten megabytes, so they
// are dropped once the documents are built.
func loadBuiltin() (definitions, error) {
	text, err := unpack(packed)
	if err != nil {
		return nil, fmt.Errorf("unpack built-in definitions: %w", err)
	}
	var d definitions
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("parse built-in definitions: %w", err)
	}
	return d, nil
}

// names maps each kind to the name of its definition. A kind that exists in every group
// (DeleteOptions) has an entry for each group.
func (d definitions) names() map[schema.GroupVersionKind]string {
	names := map[schema.GroupVersionKind]string{}
	for name, s := range d {
		for _, gvk := range kindsOf(s) {
			names[gvk] = name
		}
	}
	return names
}

// kindsOf returns the kinds that a schema lists in its extension.
func kindsOf(s *spec.Schema) []schema.GroupVersionKind {
	list, _ := s.Extensions[extGVK].([]any)
	var kinds []schema.GroupVersionKind
	for _, entry := range list {
		fields, _ := entry.(map[string]any)
		group, _ := fields["group"].(string)
		version, _ := fields["version"].(string)
		name, _ := fields["kind"].(string)
		kinds = append(kinds, schema.GroupVersionKind{Group: group, Version: version, Kind: name})
	}
	return kinds
}

// describeKind returns a kind as the value of an extension.
func describeKind(gvk schema.GroupVersionKind) map[string]any {
	return map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind}
}

// reach copies the named definition, and all that it refers to, from d to out.
func (d definitions) reach(name string, out definitions) error {
	if _, done := out[name]; done {
		return nil
	}
	s, ok := d[name]
	if !ok {
		return fmt.Errorf("definition %s does not exist", name)
	}
	out[name] = s
	var err error
	w := schemamutation.Walker{
		SchemaCallback: schemamutation.SchemaCallBackNoop,
		RefCallback: func(ref *spec.Ref) *spec.Ref {
			if target := ref.String(); target != "" && err == nil {
				err = d.reach(refName(target), out)
			}
			return ref
		},
	}
	w.WalkSchema(s)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// refName returns the definition that a reference points to, in both versions of
// OpenAPI.
func refName(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }

// refTo returns a schema that refers to a definition.
func refTo(prefix, name string) *spec.Schema {
	return spec.RefSchema(prefix + name)
}

// without copies a schema's extensions except one.
func without(extensions spec.Extensions, name string) spec.Extensions {
	var out spec.Extensions
	for k, v := range extensions {
		if k != name {
			if out == nil {
				out = spec.Extensions{}
			}
			out[k] = v
		}
	}
	return out
}

// modelName returns the definition name of a kind without a Go type: the reversed
// group, the version and the kind.
func modelName(gvk schema.GroupVersionKind) string {
	if gvk.Group == "" {
		return gvk.Version + "." + gvk.Kind
	}
	parts := strings.Split(gvk.Group, ".")
	slices.Reverse(parts)
	return strings.Join(append(parts, gvk.Version, gvk.Kind), ".")
}

// customObject builds the definition of a kind that is not built in, from the kind's own
// schema. A kind without a schema gets no properties: kubectl treats a list of
// properties as complete and would refuse all other fields.
func (b *builder) customObject(v *kind.Version) *spec.Schema {
	s := new(spec.Schema).Typed("object", "")
	if v.Schema != nil {
		if own := v.Schema(); own != nil {
			copied := *own
			s = &copied
			s.Properties = maps.Clone(s.Properties)
			s.Extensions = maps.Clone(s.Extensions)
			b.addObjectFields(s)
		}
	}
	s.AddExtension(extGVK, []any{describeKind(v.GVK)})
	addSelectable(s, v)
	return s
}

// addSelectable names the fields that a fieldSelector may use.
func addSelectable(s *spec.Schema, v *kind.Version) {
	if len(v.SelectableFields) == 0 {
		return
	}
	var fields []any
	for _, path := range v.SelectableFields {
		fields = append(fields, map[string]any{"fieldPath": path})
	}
	s.AddExtension(extSelectable, fields)
}

// addObjectFields sets apiVersion, kind and metadata, even if the kind's own schema
// describes them differently.
func (b *builder) addObjectFields(s *spec.Schema) {
	types := b.builtin[nameTypeMeta]
	s.SetProperty("apiVersion", types.Properties["apiVersion"])
	s.SetProperty("kind", types.Properties["kind"])
	s.SetProperty("metadata", b.metadata(nameObjectMeta))
}

// metadata returns the metadata field of an object or a list.
func (b *builder) metadata(name string) spec.Schema {
	described := b.builtin[namePartial].Properties["metadata"].Description
	return *refTo(prefixV3, name).WithDescription(described)
}

// customList builds the definition of the list of such a kind.
func (b *builder) customList(v *kind.Version, gvk schema.GroupVersionKind, object string) *spec.Schema {
	types := b.builtin[nameTypeMeta]
	items := spec.ArrayProperty(refTo(prefixV3, object)).WithDescription("The " + v.Kind.Plural + ".")
	s := new(spec.Schema).Typed("object", "").
		WithDescription(fmt.Sprintf("%s is a list of %s.", gvk.Kind, v.Kind.Name)).
		WithRequired("items").
		SetProperty("items", *items).
		SetProperty("metadata", b.metadata(nameListMeta)).
		SetProperty("apiVersion", types.Properties["apiVersion"]).
		SetProperty("kind", types.Properties["kind"])
	s.AddExtension(extGVK, []any{describeKind(gvk)})
	addSelectable(s, v)
	return s
}
