package builtin

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/exeunt/exeunt/kind"
)

// wire is shared by all built-in kinds.
var wire = sync.OnceValue(func() *kind.Wire {
	s := Scheme()
	return &kind.Wire{
		Serializer:      Codecs(),
		ParameterCodec:  runtime.NewParameterCodec(s),
		Creater:         s,
		Convertor:       s,
		UnsafeConvertor: runtime.UnsafeObjectConvertor(s),
		Defaulter:       s,
		Typer:           s,
		TypeConverter:   newLazyConverter(s),
	}
})

// lazyConverter puts off parsing the schema of all built-in types, which takes
// a good part of a second, until somebody writes a managed field.
//
// Some types have no schema there (the review kinds): their fields are deduced
// from the values, which is enough for objects that are never stored.
type lazyConverter struct {
	declared func() managedfields.TypeConverter
	deduced  managedfields.TypeConverter
}

func newLazyConverter(s *runtime.Scheme) managedfields.TypeConverter {
	return &lazyConverter{
		declared: sync.OnceValue(func() managedfields.TypeConverter { return applyconfigurations.NewTypeConverter(s) }),
		deduced:  managedfields.NewDeducedTypeConverter(),
	}
}

func (c *lazyConverter) ObjectToTyped(obj runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	if noSchema[obj.GetObjectKind().GroupVersionKind().Group] {
		return c.deduced.ObjectToTyped(obj, opts...)
	}
	return c.declared().ObjectToTyped(obj, opts...)
}

// TypedToObject needs no schema: the value carries its own.
func (c *lazyConverter) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
	return c.deduced.TypedToObject(value)
}

// noSchema are the groups that no apply configuration exists for.
var noSchema = map[string]bool{"authentication.k8s.io": true, "authorization.k8s.io": true}
