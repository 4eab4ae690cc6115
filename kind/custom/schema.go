package custom

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	endpoints "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// schemas are the structural schemas of a kind by version. Their defaults contain only
// fields of the schema.
type schemas map[string]*schema.Structural

func newSchemas(crd *apiextensionsv1.CustomResourceDefinition) (schemas, error) {
	out := schemas{}
	for _, v := range crd.Spec.Versions {
		if _, twice := out[v.Name]; twice {
			return nil, fmt.Errorf("version %s is declared twice", v.Name)
		}
		s, err := structural(v)
		if err != nil {
			return nil, err
		}
		if err := defaulting.PruneDefaults(s); err != nil {
			return nil, fmt.Errorf("version %s: prune defaults: %w", v.Name, err)
		}
		out[v.Name] = s
	}
	return out, nil
}

// structural returns a version's schema in the form for pruning and defaulting.
func structural(v apiextensionsv1.CustomResourceDefinitionVersion) (*schema.Structural, error) {
	props, err := schemaProps(v)
	if err != nil {
		return nil, err
	}
	s, err := schema.NewStructural(props)
	if err != nil {
		return nil, fmt.Errorf("version %s: schema is not structural: %w", v.Name, err)
	}
	return s.DeepCopy(), nil // defaults are shared with props until here
}

// schemaProps returns a version's schema in the form for the validators.
func schemaProps(v apiextensionsv1.CustomResourceDefinitionVersion) (*apiextensions.JSONSchemaProps, error) {
	if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
		return nil, fmt.Errorf("version %s has no schema", v.Name)
	}
	var out apiextensions.CustomResourceValidation
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(v.Schema, &out, nil); err != nil {
		return nil, fmt.Errorf("version %s: read schema: %w", v.Name, err)
	}
	return out.OpenAPIV3Schema, nil
}

// raw reports whether stored bodies can be served unchanged in every version.
//
// A read must do two things to a body: fill in the storage version's defaults, and
// prune fields that the requested version does not have. There is nothing to fill in
// if no schema has defaults. There is nothing to prune if the body was pruned by an
// equal schema when it was written, that is, if all versions have the same schema and
// the definition was never changed. After the first change (generation 2) a body may
// contain fields that were removed from the schema, so reads must prune.
func (s schemas) raw(generation int64) bool {
	if generation > 1 {
		return false
	}
	var first *schema.Structural
	for _, one := range s {
		if first == nil {
			first = one
		}
		if hasDefaults(one) || !equality.Semantic.DeepEqual(first, one) {
			return false
		}
	}
	return true
}

func hasDefaults(s *schema.Structural) bool {
	found := false
	visitor := schema.Visitor{Structural: func(s *schema.Structural) bool {
		found = found || s.Default.Object != nil
		return false // nothing changed
	}}
	visitor.Visit(s)
	return found
}

// coercer does for unstructured objects what decoding into a Go struct does for typed
// ones: it types the metadata, and removes unknown fields and nulls that the schema
// does not allow.
type coercer struct {
	family *family

	// lenient drops malformed metadata instead of refusing the object. It is for stored
	// bodies, which must stay readable.
	lenient bool
	// track returns the removed fields, for strict field validation.
	track bool
}

// apply changes u in place. For objects of other kinds (options, for example) it only
// types the metadata.
func (c coercer) apply(u *unstructured.Unstructured) (unknown []string, err error) {
	kind, hasKind, err := unstructured.NestedString(u.Object, "kind")
	if err != nil {
		return nil, err
	}
	apiVersion, hasVersion, err := unstructured.NestedString(u.Object, "apiVersion")
	if err != nil {
		return nil, err
	}
	gv, err := runtimeschema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, err
	}
	metadata, hasMeta, unknown, err := objectmeta.GetObjectMetaWithOptions(u.Object, objectmeta.ObjectMetaOptions{
		DropMalformedFields: c.lenient, ReturnUnknownFieldPaths: c.track,
	})
	if err != nil {
		return nil, err
	}
	if gv.WithKind(kind).GroupKind() == c.family.kind {
		s, err := c.family.structural(gv.Version)
		if err != nil {
			return nil, err
		}
		more, err := c.fit(u, s)
		if err != nil {
			return nil, err
		}
		unknown = append(unknown, more...)
	}
	// Restore these three: the schema may mention them, but must not change them.
	if hasKind {
		u.SetKind(kind)
	}
	if hasVersion {
		u.SetAPIVersion(apiVersion)
	}
	if hasMeta {
		return unknown, objectmeta.SetObjectMeta(u.Object, metadata)
	}
	return unknown, nil
}

// fit prunes u to the schema, and types the metadata of embedded objects.
func (c coercer) fit(u *unstructured.Unstructured, s *schema.Structural) ([]string, error) {
	unknown := pruning.PruneWithOptions(u.Object, s, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: c.track})
	defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, s)
	fieldErr, more := objectmeta.CoerceWithOptions(nil, u.Object, s, false, objectmeta.CoerceOptions{
		DropInvalidFields: c.lenient, ReturnUnknownFieldPaths: c.track,
	})
	if fieldErr != nil { // a nil *field.Error in an error would not be nil
		return nil, fieldErr
	}
	return append(unknown, more...), nil
}

const (
	refPrefix = "#/components/schemas/"
	gvkKey    = "x-kubernetes-group-version-kind"
)

// openAPI returns the published schema of a version: with apiVersion, kind, metadata
// and the group, version and kind. References point to the published ObjectMeta. Nil if the
// definition cannot be read.
func (f *family) openAPI(version string) *spec.Schema {
	gvk := f.gvk(version)
	structural, err := f.structural(version)
	if err != nil {
		return nil
	}
	// Unfold repeats in each part of the schema what its allOf, anyOf etc. say, for
	// readers that do not combine them.
	s := structural.Unfold().ToKubeOpenAPI()
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
func modelName(gvk runtimeschema.GroupVersionKind) string {
	parts := strings.Split(gvk.Group, ".")
	slices.Reverse(parts)
	return strings.Join(append(parts, gvk.Version, gvk.Kind), ".")
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
