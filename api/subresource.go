package api

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/exeunt/exeunt/lifecycle"
)

// patchOnly is a subresource such as /status: it reads and changes an object
// that exists, and never creates one, whatever the kind allows elsewhere.
type patchOnly struct{ *resource }

func (p *patchOnly) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	existing := *p.resource
	existing.strategy = neverCreate{p.strategy}
	return existing.Update(ctx, name, info, create, update, false, options)
}

type neverCreate struct{ lifecycle.Strategy }

func (neverCreate) AllowCreateOnUpdate(context.Context) bool { return false }

// finalizeStrategy is a Namespace's /finalize: the one place where
// spec.finalizers may change, and nothing else does.
type finalizeStrategy struct{ lifecycle.Strategy }

func (finalizeStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	changed, existing := obj.(*corev1.Namespace), old.(*corev1.Namespace)
	finalizers := changed.Spec.Finalizers
	meta := changed.ObjectMeta
	existing.DeepCopyInto(changed)
	changed.Spec.Finalizers = finalizers
	changed.ObjectMeta.ResourceVersion = meta.ResourceVersion
	changed.ObjectMeta.ManagedFields = meta.ManagedFields
}

func (finalizeStrategy) ValidateUpdate(context.Context, runtime.Object, runtime.Object) field.ErrorList {
	return nil
}
