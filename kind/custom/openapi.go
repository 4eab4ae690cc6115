package custom

import (
	"slices"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	endpoints "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

const (
	refPrefix = "#/components/schemas/"
	gvkKey    = "x-kubernetes-group-version-kind"
)

// openAPI returns the published schema of a version: with apiVersion, kind, metadata
// and the group, version and kind. References point to the published ObjectMeta.
func (f *family) openAPI(version string) *spec.Schema {
	gvk := f.gvk(version)
	// Unfold repeats in each part of the schema what its allOf, anyOf etc. say, for
	// readers that do not combine them.
	s := f.schemas[version].Unfold().ToKubeOpenAPI()
	addObjectFields(s)
	addEmbedded(s)
	s.AddExtension(gvkKey, []any{map[string]any{
		"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind,
	}})
	return s
}

// addObjectFields adds apiVersion, kind and metadata.
func addObjectFields(s *spec.Schema) {
	docs := metav1.TypeMeta{}.SwaggerDoc()
	s.SetProperty("apiVersion", *spec.StringProperty().WithDescription(docs["apiVersion"]))
	s.SetProperty("kind", *spec.StringProperty().WithDescription(docs["kind"]))
	s.SetProperty("metadata", *spec.RefSchema(refPrefix + metav1.ObjectMeta{}.OpenAPIModelName()).
		WithDescription(metav1.PartialObjectMetadata{}.SwaggerDoc()["metadata"]))
}

// addEmbedded does the same for embedded objects.
func addEmbedded(s *spec.Schema) {
	if s == nil {
		return
	}
	for name, p := range s.Properties {
		addEmbedded(&p)
		s.Properties[name] = p
	}
	if s.Items != nil {
		addEmbedded(s.Items.Schema)
	}
	if s.AdditionalProperties != nil {
		addEmbedded(s.AdditionalProperties.Schema)
	}
	if embedded, _ := s.Extensions.GetBool("x-kubernetes-embedded-resource"); !embedded {
		return
	}
	addObjectFields(s)
	for _, name := range []string{"kind", "apiVersion"} {
		if !slices.Contains(s.Required, name) {
			s.Required = append(s.Required, name)
		}
	}
}

// modelName returns the published name of a kind: "com.example.v1.Widget".
func modelName(gvk schema.GroupVersionKind) string {
	parts := strings.Split(gvk.Group, ".")
	slices.Reverse(parts)
	return strings.Join(append(parts, gvk.Version, gvk.Kind), ".")
}

// models returns the schemas of all versions and the schemas that they refer to.
// Versions that are not served are included, since managed fields may be in one.
func (f *family) models() (map[string]*spec.Schema, error) {
	out, err := generated(runtime.NewScheme(), metav1.ObjectMeta{}.OpenAPIModelName())
	if err != nil {
		return nil, err
	}
	for version := range f.schemas {
		out[modelName(f.gvk(version))] = f.openAPI(version)
	}
	return out, nil
}

// generated returns the named models of the library and the models that they refer to.
// Types of the scheme carry their group, version and kind.
func generated(s *runtime.Scheme, names ...string) (map[string]*spec.Schema, error) {
	return builder3.BuildOpenAPIDefinitionsForResources(&common.OpenAPIV3Config{
		GetDefinitions:    openapi.GetOpenAPIDefinitions,
		GetDefinitionName: endpoints.NewDefinitionNamer(s).GetDefinitionName,
	}, names...)
}

// lazyTypes is a managedfields.TypeConverter that is built when the first object is
// written.
type lazyTypes struct {
	get func() managedfields.TypeConverter // once
}

// newLazyTypes builds one from models. If that fails, field types are deduced from each
// object, as for a kind without a schema: server-side apply then replaces lists as a
// whole, which is better than refusing every write.
func newLazyTypes(models func() (map[string]*spec.Schema, error)) *lazyTypes {
	return &lazyTypes{get: sync.OnceValue(func() managedfields.TypeConverter {
		if m, err := models(); err == nil {
			if c, err := managedfields.NewTypeConverter(m, false); err == nil {
				return c
			}
		}
		return managedfields.NewDeducedTypeConverter()
	})}
}

// ObjectToTyped implements managedfields.TypeConverter.
func (l *lazyTypes) ObjectToTyped(obj runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	return l.get().ObjectToTyped(obj, opts...)
}

// TypedToObject implements managedfields.TypeConverter.
func (l *lazyTypes) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
	return l.get().TypedToObject(value)
}
