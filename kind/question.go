package kind

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/exeunt/exeunt/object"
)

// Call is the part of a request, besides its object, that an Answer may need.
type Call struct {
	Client Client
	DryRun bool // the answer must change nothing
	// Warn sends the client a warning with the answer. Nil: warnings are dropped.
	Warn func(text string)
}

// Answer computes the reply to an object of an ephemeral kind. It may change the
// object and return it.
type Answer func(ctx context.Context, obj runtime.Object, call Call) (runtime.Object, error)

// NewQuestion creates an ephemeral kind from a Go type of the scheme: a create is
// answered, and nothing is stored. Like the review kinds of Kubernetes it is
// cluster-scoped; its spec names the object, which may be namespaced.
func NewQuestion(scheme *runtime.Scheme, example runtime.Object, plural string, described *spec.Schema, answer Answer) *Kind {
	gvks, _, err := scheme.ObjectKinds(example)
	if err != nil {
		panic(err) // a scheme knows its own types
	}
	gvk := gvks[0]
	k := &Kind{
		Group: gvk.Group, Name: gvk.Kind, Plural: plural, Singular: strings.ToLower(gvk.Kind),
		Storage:   StorageName(gvk.Group, plural),
		Ephemeral: true, Answer: answer,
	}
	k.Versions = []*Version{{
		Kind: k, GVK: gvk,
		New: example.DeepCopyObject,
		Decode: func([]byte, string) (runtime.Object, error) {
			return nil, errors.New("a " + gvk.Kind + " is never stored")
		},
		Encode: object.Encode,
		Table:  rest.NewDefaultTableConvertor(schema.GroupResource{Group: gvk.Group, Resource: plural}),
		Wire:   questionWire(scheme),
		Schema: described,
	}}
	return k
}

func questionWire(s *runtime.Scheme) *Wire {
	return &Wire{
		Serializer:      serializer.NewCodecFactory(s),
		ParameterCodec:  runtime.NewParameterCodec(s),
		Creater:         s,
		Convertor:       s,
		UnsafeConvertor: runtime.UnsafeObjectConvertor(s),
		Defaulter:       s,
		Typer:           s,
		TypeConverter:   managedfields.NewDeducedTypeConverter(),
	}
}

// NewTable converts an object or a list to a Table with one row per object. Rows carry
// their object; the library's handler drops it or reduces it to metadata. options says
// whether to include the column definitions.
func NewTable(obj, options runtime.Object, columns []metav1.TableColumnDefinition, row func(runtime.Object) (metav1.TableRow, error)) (*metav1.Table, error) {
	t := &metav1.Table{Rows: []metav1.TableRow{}}
	if o, ok := options.(*metav1.TableOptions); !ok || o == nil || !o.NoHeaders {
		t.ColumnDefinitions = columns
	}
	if list, err := meta.ListAccessor(obj); err == nil {
		t.ResourceVersion, t.Continue, t.RemainingItemCount = list.GetResourceVersion(), list.GetContinue(), list.GetRemainingItemCount()
	} else if one, err := meta.CommonAccessor(obj); err == nil {
		t.ResourceVersion = one.GetResourceVersion()
	}
	add := func(item runtime.Object) error {
		r, err := row(item)
		if err != nil {
			return err
		}
		r.Object = runtime.RawExtension{Object: item}
		t.Rows = append(t.Rows, r)
		return nil
	}
	if !meta.IsListType(obj) {
		return t, add(obj)
	}
	return t, meta.EachListItem(obj, add)
}

// Cells returns the row function of NewTable for objects of one Go type.
func Cells[P any](cells func(P) []any) func(runtime.Object) (metav1.TableRow, error) {
	return func(item runtime.Object) (metav1.TableRow, error) {
		p, ok := item.(P)
		if !ok {
			return metav1.TableRow{}, fmt.Errorf("no table of a %T", item)
		}
		return metav1.TableRow{Cells: cells(p)}, nil
	}
}
