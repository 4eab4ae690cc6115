package builtin

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// pointerTo is a pointer to an API type T.
type pointerTo[T any] interface {
	*T
	runtime.Object
	metav1.Object
}

// def declares one kind. The zero value of each field is the common case.
type def[T any, P pointerTo[T]] struct {
	gv     schema.GroupVersion
	plural string
	short  []string
	all    bool // in the category "all"
	// extends puts a kind into the category "api-extensions".
	extends bool

	cluster   bool // not in a namespace
	ephemeral bool
	rules     lifecycle.Rules
	// returnsDeleted: a delete answers with the object, not with a Status.
	returnsDeleted bool
	orphanWarning  string
	deprecation    string // sent as a warning with every answer

	createOnUpdate bool // a PUT may create
	conditional    bool // an update must carry a resourceVersion

	// parts point at the object's spec and status. The status is cleared on create and
	// kept on update; /status keeps the spec. Either may be nil.
	parts func(P) (spec, status any)
	// noStatus omits /status although parts has a status.
	noStatus bool
	// keepStatus keeps the status that a client sends on create (Nodes).
	keepStatus bool
	// generation starts at 1 and increases with each change of the spec; moves, if set,
	// decides instead whether it increases.
	generation bool
	moves      func(obj, old P) bool

	name           apivalidation.ValidateNameFunc // nil: DNS subdomain
	prepareCreate  func(P)
	prepareUpdate  func(obj, old P)
	validate       func(P) field.ErrorList // on create and on update
	validateCreate func(P) field.ErrorList // on create only
	validateUpdate func(obj, old P) field.ErrorList
	warn           func(P) []string
	canonicalize   func(P)

	prepareStatus  func(obj, old P)
	validateStatus func(obj, old P) field.ErrorList
	// statusResets are metadata fields that /status keeps, in addition to the spec.
	statusResets []fieldpath.Path

	scale *kind.Scale
	table func() table[P] // nil: name and age
	plain bool            // the library's table: name and creation time

	// storage, decode and encode are for a kind that is a view of another.
	storage string
	decode  func(body []byte, resourceVersion string) (runtime.Object, error)
	encode  func(obj runtime.Object) ([]byte, error)
}

// kind builds the Kind that a def declares.
func (d def[T, P]) kind() *kind.Kind {
	gvk := d.gvk()
	k := &kind.Kind{
		Group:      gvk.Group,
		Name:       gvk.Kind,
		ListName:   gvk.Kind + "List",
		Plural:     d.plural,
		Singular:   strings.ToLower(gvk.Kind),
		ShortNames: d.short,
		Namespaced: !d.cluster,
		Storage:    kind.StorageName(gvk.Group, d.plural),
		Rules:      d.rules,
		Ephemeral:  d.ephemeral,

		ReturnsDeleted: d.returnsDeleted,
		OrphanWarning:  d.orphanWarning,
	}
	if d.all {
		k.Categories = []string{"all"}
	}
	if d.extends {
		k.Categories = []string{"api-extensions"}
	}
	if d.storage != "" {
		k.Storage = d.storage
	}
	if d.ephemeral {
		k.ListName = ""
	}
	k.Versions = []*kind.Version{d.version(k, gvk)}
	return k
}

func (d def[T, P]) version(k *kind.Kind, gvk schema.GroupVersionKind) *kind.Version {
	main := &strategy[T, P]{def: d}
	v := &kind.Version{
		Kind:             k,
		GVK:              gvk,
		New:              func() runtime.Object { return P(new(T)) },
		NewList:          d.newList(gvk),
		Decode:           d.decode,
		Encode:           d.encode,
		Raw:              d.decode == nil,
		Strategy:         main,
		Scale:            d.scale,
		SelectableFields: selectableFields(gvk),
		Table:            d.convertor(),
		Wire:             wire(),
		Warning:          d.deprecation,
	}
	if d.decode == nil {
		v.Decode = func(body []byte, resourceVersion string) (runtime.Object, error) {
			obj := P(new(T))
			if err := object.DecodeInto(body, resourceVersion, gvk, obj); err != nil {
				return nil, err
			}
			return obj, nil
		}
		v.Encode = object.Encode
	}
	if d.parts == nil || d.noStatus {
		return v
	}
	apiVersion := fieldpath.APIVersion(gvk.GroupVersion().String())
	v.Status = &statusStrategy[T, P]{strategy: main}
	v.ResetFields = map[fieldpath.APIVersion]*fieldpath.Set{
		apiVersion: fieldpath.NewSet(fieldpath.MakePathOrDie("status")),
	}
	v.StatusResetFields = map[fieldpath.APIVersion]*fieldpath.Set{
		apiVersion: fieldpath.NewSet(append([]fieldpath.Path{fieldpath.MakePathOrDie("spec")}, d.statusResets...)...),
	}
	return v
}

// newList returns a constructor of lists. It is nil for review kinds, which cannot be
// listed.
func (d def[T, P]) newList(gvk schema.GroupVersionKind) func() runtime.Object {
	listKind := gvk.GroupVersion().WithKind(gvk.Kind + "List")
	if !Scheme().Recognizes(listKind) {
		return nil
	}
	return func() runtime.Object {
		list, err := Scheme().New(listKind)
		if err != nil {
			panic(err) // cannot happen: the scheme recognizes the type
		}
		return list
	}
}

func (d def[T, P]) convertor() rest.TableConvertor {
	switch {
	case d.ephemeral:
		return nil // as in Kubernetes, the review kinds have no Table
	case d.plain:
		return rest.NewDefaultTableConvertor(d.gv.WithResource(d.plural).GroupResource())
	case d.table != nil:
		return newConvertor(d.gv.WithResource(d.plural).GroupResource(), d.table())
	}
	return newConvertor(d.gv.WithResource(d.plural).GroupResource(), nameAndAge[P]())
}

// gvk returns the kind of T in the def's group and version, from the scheme.
func (d def[T, P]) gvk() schema.GroupVersionKind {
	gvks, _, err := Scheme().ObjectKinds(P(new(T)))
	if err != nil {
		panic(err) // a def for a type that the scheme lacks
	}
	for _, gvk := range gvks {
		if gvk.GroupVersion() == d.gv {
			return gvk
		}
	}
	panic("builtin: no kind in " + d.gv.String() + " for " + d.plural)
}
