package foresight

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kube-openapi/pkg/validation/spec"

	v1 "github.com/exeunt/exeunt/foresight/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
)

// Kinds are the questions as kinds, to be put into the registry. They live in
// no namespace, like the review kinds of Kubernetes: what a question is about
// is in its spec, and may live in one.
func (s *Service) Kinds() []*kind.Kind {
	return []*kind.Kind{
		newKind(&v1.DeletionPreview{}, "deletionpreviews", previewSchema(), s.answerPreview),
		newKind(&v1.DeletionReport{}, "deletionreports", reportSchema(), s.answerReport),
	}
}

func (s *Service) answerPreview(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	p, ok := obj.(*v1.DeletionPreview)
	if !ok {
		return nil, fmt.Errorf("preview: got a %T", obj)
	}
	out := p.DeepCopy()
	out.ManagedFields = nil // nobody manages what is not kept
	var err error
	out.Status, err = s.Preview(ctx, p.Spec)
	if object.Is(err, object.NotFound) {
		return nil, s.missing(p.Spec.Object)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (s *Service) answerReport(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	r, ok := obj.(*v1.DeletionReport)
	if !ok {
		return nil, fmt.Errorf("report: got a %T", obj)
	}
	out := r.DeepCopy()
	out.ManagedFields = nil
	var err error
	out.Status, err = s.Report(ctx, r.Spec)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// missing is the Status for the object that was asked about: without it, the
// question itself would be said not to be found.
func (s *Service) missing(ref v1.ObjectReference) error {
	resource, name := schema.GroupResource{Resource: "objects"}, string(ref.UID)
	if gv, err := schema.ParseGroupVersion(ref.APIVersion); err == nil && ref.Name != "" {
		name = ref.Name
		if k := find(s.kinds.Snapshot(), gv.WithKind(ref.Kind)); k != nil {
			resource = schema.GroupResource{Group: k.Group, Resource: k.Plural}
		}
	}
	return apierrors.NewNotFound(resource, name)
}

// newKind makes the kind of a question.
func newKind(example runtime.Object, plural string, described *spec.Schema, answer func(context.Context, runtime.Object) (runtime.Object, error)) *kind.Kind {
	gvks, _, err := scheme().ObjectKinds(example)
	if err != nil {
		panic(err) // the scheme knows its own types
	}
	gvk := gvks[0]
	k := &kind.Kind{
		Group: gvk.Group, Name: gvk.Kind, Plural: plural, Singular: strings.ToLower(gvk.Kind),
		Storage:   kind.StorageName(gvk.Group, plural),
		Ephemeral: true, Answer: answer,
	}
	k.Versions = []*kind.Version{{
		Kind: k, GVK: gvk,
		New: example.DeepCopyObject,
		Decode: func([]byte, string) (runtime.Object, error) {
			return nil, errors.New("a " + gvk.Kind + " is never stored")
		},
		Encode: object.Encode,
		Table:  rest.NewDefaultTableConvertor(schema.GroupResource{Group: gvk.Group, Resource: plural}),
		Wire:   wire(),
		Schema: described,
	}}
	return k
}

// scheme knows the questions, and what a server says besides.
var scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := v1.AddToScheme(s); err != nil {
		panic(fmt.Sprintf("foresight scheme: %v", err)) // constants only: one call in a test is proof
	}
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s
})

var wire = sync.OnceValue(func() *kind.Wire {
	s := scheme()
	return &kind.Wire{
		Serializer:      serializer.NewCodecFactory(s),
		ParameterCodec:  runtime.NewParameterCodec(s),
		Creater:         s,
		Convertor:       s,
		UnsafeConvertor: runtime.UnsafeObjectConvertor(s),
		Defaulter:       s,
		Typer:           s,
		TypeConverter:   managedfields.NewDeducedTypeConverter(),
	}
})
