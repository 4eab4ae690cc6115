package openapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/exeunt/exeunt/kind"
)

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
		copied := *v.Schema
		s = &copied
		s.Properties = maps.Clone(s.Properties)
		s.Extensions = maps.Clone(s.Extensions)
		b.addObjectFields(s)
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
