package v1

import (
	"fmt"
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// GroupVersion is the group and version of these kinds.
var GroupVersion = schema.GroupVersion{Group: "lifecycle.exeunt.dev", Version: "v1"}

// AddToScheme registers the kinds in a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &DeletionPreview{}, &DeletionReport{}, &FinalizerRemoval{}, &ExpiryPreview{},
		&ArchivedObject{}, &ArchivedObjectList{}, &Cascade{}, &CascadeList{}, &Restore{}, &RestoreList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Scheme has the kinds, and the types of a server's other answers.
var Scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := AddToScheme(s); err != nil {
		panic(fmt.Sprintf("scheme of %s: %v", GroupVersion, err)) // the input is constant: one test call proves it
	}
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s
})

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
