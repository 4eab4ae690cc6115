package builtin

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/exeunt/exeunt/kind"
)

// wire returns the codecs that all built-in kinds share.
var wire = sync.OnceValue(func() *kind.Wire {
	s := Scheme()
	return &kind.Wire{
		Serializer:      Codecs(),
		ParameterCodec:  runtime.NewParameterCodec(s),
		Creater:         s,
		Convertor:       versions{s, true},
		UnsafeConvertor: versions{s, false},
		Defaulter:       s,
		Typer:           s,
		TypeConverter:   newTypeConverter(s),
	}
})

// Wire returns the codecs of built-in objects. They include Scale, the /scale subresource
// of kinds in all groups.
func Wire() *kind.Wire { return wire() }

// versions converts between the versions that are served, by way of the internal types.
type versions struct {
	*runtime.Scheme
	copies bool // the result shares no memory with the object
}

func (v versions) ConvertToVersion(obj runtime.Object, to runtime.GroupVersioner) (runtime.Object, error) {
	if kinds, unversioned, err := v.ObjectKinds(obj); err == nil && !unversioned {
		if kind, ok := to.KindForGroupVersionKinds(kinds); ok && !slices.Contains(kinds, kind) {
			if obj, err = internal(obj); err != nil {
				return nil, err
			}
		}
	}
	if v.copies {
		return v.Scheme.ConvertToVersion(obj, to)
	}
	return v.UnsafeConvertToVersion(obj, to)
}
