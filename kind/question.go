package kind

import (
	"context"
	"errors"
	"strings"

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
