package builtin

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// def declares one kind. The zero value of each field is the common case.
type def struct {
	obj    runtime.Object // of the type that is served
	plural string
	short  []string
	all    bool // in the category "all"
	// extends puts a kind into the category "api-extensions".
	extends bool

	strategy, status kubernetes // status nil: there is no /status

	// prepare, forgives and warning are those of strategy.
	prepare  func(obj, old runtime.Object)
	forgives func(*field.Error) bool
	warning  string
	// undeclared says that Kubernetes declares no rules for the kind but those of metadata, which it
	// does not enforce yet: frequent writes do not compute them.
	undeclared bool

	rules lifecycle.Rules
	// returnsDeleted: a delete answers with the object, not with a Status.
	returnsDeleted bool
	orphanWarning  string
	deprecation    string // sent as a warning with every answer

	scale *kind.Scale
	plain bool // the library's table: name and creation time

	// view, if set, is the type in which the objects are stored.
	view runtime.Object

	// A kind that is answered and never stored has ephemeral, and no strategy.
	ephemeral  bool
	namespaced bool
	validate   func(in runtime.Object) field.ErrorList
}

// hook is a def's prepare for objects of one type. Old is nil for a new object.
func hook[P runtime.Object](f func(obj, old P)) func(obj, old runtime.Object) {
	return func(obj, old runtime.Object) {
		was, _ := old.(P)
		f(obj.(P), was)
	}
}

// kind builds the Kind that a def declares.
func (d def) kind() *kind.Kind {
	gvk := gvkOf(d.obj)
	k := &kind.Kind{
		Group:      gvk.Group,
		Name:       gvk.Kind,
		ListName:   gvk.Kind + "List",
		Plural:     d.plural,
		Singular:   strings.ToLower(gvk.Kind),
		ShortNames: d.short,
		Namespaced: d.namespaced,
		Storage:    kind.StorageName(gvk.Group, d.plural),
		Rules:      d.rules,
		Ephemeral:  d.ephemeral,

		ReturnsDeleted: d.returnsDeleted,
		OrphanWarning:  d.orphanWarning,
	}
	if d.strategy != nil {
		k.Namespaced = d.strategy.NamespaceScoped()
	}
	if d.all {
		k.Categories = []string{"all"}
	}
	if d.extends {
		k.Categories = []string{"api-extensions"}
	}
	if d.view != nil {
		k.Storage = kind.StorageName(gvkOf(d.view).Group, d.plural)
	}
	if d.ephemeral {
		k.ListName = ""
	}
	k.Versions = []*kind.Version{d.version(k)}
	return k
}

func (d def) version(k *kind.Kind) *kind.Version {
	gvk := gvkOf(d.obj)
	v := &kind.Version{
		Kind:             k,
		GVK:              gvk,
		New:              func() runtime.Object { return newObject(gvk) },
		Raw:              d.view == nil,
		Scale:            d.scale,
		SelectableFields: fieldLabels[gvk],
		Table:            tables{},
		Wire:             wire(),
		Warning:          d.deprecation,
	}
	if list := gvk.GroupVersion().WithKind(gvk.Kind + "List"); Scheme().Recognizes(list) {
		v.NewList = func() runtime.Object { return newObject(list) }
	}
	v.Decode, v.Encode = d.codec(gvk)
	if d.plain {
		v.Table = rest.NewDefaultTableConvertor(v.Resource().GroupResource())
	}
	if d.ephemeral {
		v.Table = nil // as in Kubernetes, the review kinds have no Table
		v.Strategy = review{d.namespaced, d.validate}
		return v
	}
	main := newStrategy(d.strategy, v.Resource(), "")
	main.prepare, main.forgives, main.warning, main.undeclared = d.prepare, d.forgives, d.warning, d.undeclared
	v.Strategy, v.ResetFields = main, resetFields(d.strategy)
	if d.status != nil {
		v.Status, v.StatusResetFields = newStrategy(d.status, v.Resource(), "status"), resetFields(d.status)
	}
	return v
}

// codec returns the functions that read and write the stored form.
func (d def) codec(gvk schema.GroupVersionKind) (func([]byte, string) (runtime.Object, error), func(runtime.Object) ([]byte, error)) {
	decode := func(into schema.GroupVersionKind, body []byte, resourceVersion string) (runtime.Object, error) {
		obj := newObject(into)
		return obj, object.DecodeInto(body, resourceVersion, into, obj)
	}
	if d.view == nil {
		return func(body []byte, resourceVersion string) (runtime.Object, error) {
			return decode(gvk, body, resourceVersion)
		}, object.Encode
	}
	stored := gvkOf(d.view)
	return func(body []byte, resourceVersion string) (runtime.Object, error) {
			obj, err := decode(stored, body, resourceVersion)
			if err != nil {
				return nil, err
			}
			return convert(obj, gvk)
		}, func(obj runtime.Object) ([]byte, error) {
			obj, err := convert(obj, stored)
			if err != nil {
				return nil, err
			}
			return object.Encode(obj)
		}
}

func resetFields(s kubernetes) map[fieldpath.APIVersion]*fieldpath.Set {
	if r, ok := s.(rest.ResetFieldsStrategy); ok {
		return r.GetResetFields()
	}
	return nil
}

// gvkOf returns the group, version and kind of a type that is served.
func gvkOf(obj runtime.Object) schema.GroupVersionKind {
	gvks, _, err := Scheme().ObjectKinds(obj)
	if err != nil {
		panic(err) // a def for a type that the scheme lacks
	}
	return gvks[0]
}

func newObject(gvk schema.GroupVersionKind) runtime.Object {
	obj, err := Scheme().New(gvk)
	if err != nil {
		panic(err) // cannot happen: the scheme recognizes the type
	}
	return obj
}
