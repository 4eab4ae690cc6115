package custom

import (
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
)

// coercer does for unstructured objects what decoding into a Go struct does for typed
// ones: it types the metadata, and removes unknown fields and nulls that the schema
// does not allow.
type coercer struct {
	kind    runtimeschema.GroupKind
	schemas schemas

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
	if gv.WithKind(kind).GroupKind() == c.kind {
		more, err := c.fit(u, c.schemas[gv.Version])
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
