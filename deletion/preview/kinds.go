package preview

import (
	"context"
	"fmt"
	"sync"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kinds returns the kinds of the questions, for the kind registry.
func (s *Service) Kinds() []*kind.Kind {
	return []*kind.Kind{
		kind.NewQuestion(scheme(), &v1.DeletionPreview{}, "deletionpreviews", previewSchema(), s.answerPreview),
		kind.NewQuestion(scheme(), &v1.DeletionReport{}, "deletionreports", reportSchema(), s.answerReport),
	}
}

func (s *Service) answerPreview(ctx context.Context, obj runtime.Object, _ kind.Call) (runtime.Object, error) {
	p, ok := obj.(*v1.DeletionPreview)
	if !ok {
		return nil, fmt.Errorf("preview: got a %T", obj)
	}
	out := p.DeepCopy()
	out.ManagedFields = nil // the request is not stored
	if err := s.mayGet(ctx, p.Spec.Object); err != nil {
		return nil, err
	}
	var err error
	out.Status, err = s.Preview(ctx, p.Spec)
	if object.Is(err, object.NotFound) {
		return nil, s.missing(p.Spec.Object)
	}
	if err == nil {
		err = s.hide(ctx, &out.Status)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (s *Service) answerReport(ctx context.Context, obj runtime.Object, _ kind.Call) (runtime.Object, error) {
	r, ok := obj.(*v1.DeletionReport)
	if !ok {
		return nil, fmt.Errorf("report: got a %T", obj)
	}
	out := r.DeepCopy()
	out.ManagedFields = nil
	asked := r.Spec.Object
	if r.Spec.Namespace != "" {
		asked = v1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: r.Spec.Namespace}
	}
	err := s.mayGet(ctx, asked)
	if err == nil {
		out.Status, err = s.Report(ctx, r.Spec)
	}
	if err == nil {
		err = s.mayGet(ctx, out.Status.Object)
	}
	if err != nil {
		return nil, err
	}
	s.hideReasons(ctx, out.Status.Reasons)
	return out, nil
}

// missing returns the NotFound of the object in the question. Without it, clients
// would read that the question itself was not found.
func (s *Service) missing(ref v1.ObjectReference) error {
	resource, name := schema.GroupResource{Resource: "objects"}, string(ref.UID)
	if gv, err := schema.ParseGroupVersion(ref.APIVersion); err == nil && ref.Name != "" {
		name = ref.Name
		if k := s.kinds.Snapshot().Named(gv.WithKind(ref.Kind)); k != nil {
			resource = schema.GroupResource{Group: k.Group, Resource: k.Plural}
		}
	}
	return apierrors.NewNotFound(resource, name)
}

// scheme has the types of the questions, and those of a server's other answers.
var scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := v1.AddToScheme(s); err != nil {
		panic(fmt.Sprintf("preview scheme: %v", err)) // the input is constant: one test call proves it
	}
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s
})
