package custom

import (
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
)

// coercer does for generic objects what decoding into a Go struct does for
// typed ones: metadata gets its types, unknown fields go, and so do nulls where
// the schema allows none.
type coercer struct {
	kind    runtimeschema.GroupKind
	schemas schemas

	// lenient drops malformed metadata instead of refusing the object. It is
	// for stored bodies: whatever is stored has to stay readable.
	lenient bool
	// track lists the fields that go, for strict field validation.
	track bool
}

// apply changes u in place. Objects of other kinds (options pass here too) get
// their metadata typed and are otherwise left alone.
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
	// The schema may speak of these three, and must not have touched them.
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

// fit prunes u to the schema, and types the metadata of objects embedded in it.
func (c coercer) fit(u *unstructured.Unstructured, s *schema.Structural) ([]string, error) {
	unknown := pruning.PruneWithOptions(u.Object, s, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: c.track})
	defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, s)
	fieldErr, more := objectmeta.CoerceWithOptions(nil, u.Object, s, false, objectmeta.CoerceOptions{
		DropInvalidFields: c.lenient, ReturnUnknownFieldPaths: c.track,
	})
	if fieldErr != nil { // a *field.Error: must not become a non-nil error by itself
		return nil, fieldErr
	}
	return append(unknown, more...), nil
}
