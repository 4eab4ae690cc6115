package preview

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
)

// Kind returns the kind of the question, for the kind registry.
func (s *Service) Kind() *kind.Kind {
	return kind.NewQuestion(v1.Scheme(), &v1.DeletionPreview{}, "deletionpreviews", v1.Schema(v1.DeletionPreview{}), s.answer)
}

func (s *Service) answer(ctx context.Context, obj runtime.Object, call kind.Call) (runtime.Object, error) {
	p, ok := obj.(*v1.DeletionPreview)
	if !ok {
		return nil, fmt.Errorf("preview: got a %T", obj)
	}
	out := p.DeepCopy()
	out.ManagedFields = nil // the request is not stored
	var err error
	out.Status, err = s.Preview(ctx, call.Client, p.Spec)
	if object.Is(err, object.NotFound) {
		return nil, s.missing(p.Spec.Object)
	}
	if err != nil {
		return nil, err
	}
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
