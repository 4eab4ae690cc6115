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
	// Warn sends the client a warning with the answer. Nil if warnings are dropped.
	Warn func(text string)
}

// Answer computes the reply to an object of an ephemeral kind. It may change the
// object and return it.
type Answer func(ctx context.Context, obj runtime.Object, call Call) (runtime.Object, error)

// Asked is the Answer to questions of one Go type: answer fills in the status of a copy, without
// managed fields, because the question is not stored.
func Asked[P metav1.Object](answer func(ctx context.Context, question P, call Call) error) Answer {
	return func(ctx context.Context, obj runtime.Object, call Call) (runtime.Object, error) {
		out := obj.DeepCopyObject()
		question, ok := out.(P)
		if !ok {
			return nil, fmt.Errorf("no answer to a %T", obj)
		}
		question.SetManagedFields(nil)
		if err := answer(ctx, question, call); err != nil {
			return nil, err
		}
		return out, nil
	}
}

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
		Ephemeral: true, Answer: answer, Fingerprint: "question", // its description is part of this program
	}
	k.Versions = []*Version{{
		Kind: k, GVK: gvk,
		New: example.DeepCopyObject,
		Decode: func([]byte, string) (runtime.Object, error) {
			return nil, errors.New("a " + gvk.Kind + " is never stored")
		},
		Encode: object.Encode,
		Table:  rest.NewDefaultTableConvertor(schema.GroupResource{Group: gvk.Group, Resource: plural}),
		Wire:   NewWire(scheme, serializer.NewCodecFactory(scheme)),
		Schema: SchemaOf(described),
	}}
	return k
}

// SchemaOf returns the Schema of a Version that keeps s.
func SchemaOf(s *spec.Schema) func() *spec.Schema {
	if s == nil {
		return nil
	}
	return func() *spec.Schema { return s }
}

// NewWire returns the codecs of kinds whose scheme has all that they need. Field types are deduced
// from each object.
func NewWire(s *runtime.Scheme, codecs runtime.NegotiatedSerializer) *Wire {
	return &Wire{
		Serializer:      codecs,
		ParameterCodec:  runtime.NewParameterCodec(s),
		Creater:         s,
		Convertor:       s,
		UnsafeConvertor: runtime.UnsafeObjectConvertor(s),
		Defaulter:       s,
		Typer:           s,
		TypeConverter:   managedfields.NewDeducedTypeConverter(),
	}
}

// Table shows objects of one Go type in columns. It implements rest.TableConvertor.
type Table[P runtime.Object] struct {
	Columns []metav1.TableColumnDefinition
	Cells   func(P) []any
}

// ConvertToTable converts an object or a list to a Table with one row per object. Rows carry
// their object; the library's handler drops it or reduces it to metadata. options says
// whether to include the column definitions.
func (s Table[P]) ConvertToTable(_ context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	t := &metav1.Table{Rows: []metav1.TableRow{}}
	if o, ok := options.(*metav1.TableOptions); !ok || o == nil || !o.NoHeaders {
		t.ColumnDefinitions = s.Columns
	}
	if list, err := meta.ListAccessor(obj); err == nil {
		t.ResourceVersion, t.Continue, t.RemainingItemCount = list.GetResourceVersion(), list.GetContinue(), list.GetRemainingItemCount()
	} else if one, err := meta.CommonAccessor(obj); err == nil {
		t.ResourceVersion = one.GetResourceVersion()
	}
	add := func(item runtime.Object) error {
		p, ok := item.(P)
		if !ok {
			return fmt.Errorf("no table of a %T", item)
		}
		t.Rows = append(t.Rows, metav1.TableRow{Cells: s.Cells(p), Object: runtime.RawExtension{Object: item}})
		return nil
	}
	if !meta.IsListType(obj) {
		return t, add(obj)
	}
	return t, meta.EachListItem(obj, add)
}
