package v1

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// maxNesting is how deep a type may be inside of itself in a schema: as deep as a report's
// reasons are shown. Below that the schema allows any fields.
const maxNesting = 3

// timeName is the name of the one type of another package that has a form of its own.
var timeName = nameOf(reflect.TypeFor[metav1.Time]())

func nameOf(t reflect.Type) string { return t.PkgPath() + "." + t.Name() }

// Schema returns the OpenAPI schema of one of the kinds, for kubectl explain and validation. It
// is complete in itself: references to other types are replaced by their schemas.
func Schema(of any) *spec.Schema {
	s := resolve(GetOpenAPIDefinitions(spec.MustCreateRef), spec.RefSchema(nameOf(reflect.TypeOf(of))), map[string]int{})
	for _, common := range []string{"apiVersion", "kind", "metadata"} {
		delete(s.Properties, common) // the server adds those of all objects
	}
	return &s
}

func resolve(all map[string]common.OpenAPIDefinition, s *spec.Schema, depth map[string]int) spec.Schema {
	name, out := s.Ref.String(), *s
	if name != "" {
		definition, known := all[name]
		out = definition.Schema
		switch {
		case name == timeName:
			out = *spec.DateTimeProperty()
		case !known || depth[name] == maxNesting:
			out = *new(spec.Schema).Typed("object", "")
			out.AddExtension("x-kubernetes-preserve-unknown-fields", true)
		}
		if s.Description != "" {
			out.Description = s.Description
		}
	}
	depth[name]++
	defer func() { depth[name]-- }()
	out.Default = nil
	if out.Items != nil {
		items := resolve(all, out.Items.Schema, depth)
		out.Items = &spec.SchemaOrArray{Schema: &items}
	}
	properties := out.Properties
	out.Properties = nil
	for field := range properties {
		property := properties[field]
		out.SetProperty(field, resolve(all, &property, depth))
	}
	return out
}
