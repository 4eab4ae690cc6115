// Package builtin declares the kinds that exist without any
// CustomResourceDefinition: the Kubernetes kinds that clients and controllers
// expect of every server. Begin with [Kinds].
//
// Each kind is one declaration ([def]) in the file of its API group: its names, its rules of
// deletion, and the strategy of Kubernetes 1.37 that has its rules. Defaults, validation,
// conversions and the columns of `kubectl get` are Kubernetes' own code ([strategy], [tables]).
//
// Objects have the version that is served and stored, so the stored JSON is the JSON of the
// response. The exceptions are events.k8s.io, a second view of the stored core Events, and
// autoscaling/v1, a second view of autoscaling/v2. Internal types exist only inside of a strategy.
//
// The package uses no store and no request.
package builtin

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/printers"
	printersinternal "k8s.io/kubernetes/pkg/printers/internalversion"
	printerstorage "k8s.io/kubernetes/pkg/printers/storage"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// Kinds returns the built-in kinds. They are built once. The slice belongs to the caller;
// the kinds are shared and must not be changed.
func Kinds() []*kind.Kind {
	return append([]*kind.Kind(nil), kinds()...)
}

var kinds = sync.OnceValue(func() []*kind.Kind {
	all := []*kind.Kind{autoscalers()}
	for _, group := range [][]def{
		coreDefs(), workloadDefs(), networkDefs(), rbacDefs(), admissionDefs(), storageDefs(),
		flowDefs(), deviceDefs(), certificateDefs(), reviewDefs(),
	} {
		for _, d := range group {
			all = append(all, d.kind())
		}
	}
	return all
})

// def declares one kind. The zero value of each field is the common case.
type def struct {
	obj    runtime.Object // of the type that is served
	plural string
	short  []string
	all    bool // in the category "all"
	// extends puts a kind into the category "api-extensions".
	extends bool

	strategy, status kubernetes // status is nil if there is no /status

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
		v.Strategy = review{d.namespaced}
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

// printer makes the tables of `kubectl get` from internal types.
var printer = sync.OnceValue(func() printerstorage.TableConvertor {
	return printerstorage.TableConvertor{TableGenerator: printers.NewTableGenerator().With(printersinternal.AddHandlers)}
})

// tables makes the tables of objects of the version that is served.
type tables struct{}

// ConvertToTable implements rest.TableConvertor. Rows carry the objects as they were given.
func (tables) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	in, err := internal(obj)
	if err != nil {
		return nil, err
	}
	table, err := printer().ConvertToTable(ctx, in, options)
	if err != nil {
		return nil, err
	}
	items := []runtime.Object{obj}
	if meta.IsListType(obj) {
		if items, err = meta.ExtractList(obj); err != nil {
			return nil, err
		}
	}
	if len(items) != len(table.Rows) {
		return nil, fmt.Errorf("table of %T has %d rows for %d objects", obj, len(table.Rows), len(items))
	}
	for i := range items {
		table.Rows[i].Object.Object = items[i]
	}
	return table, nil
}

// ScaleTable returns the table of Scales.
func ScaleTable() rest.TableConvertor { return tables{} }
