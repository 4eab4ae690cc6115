package api

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/object"
)

// addFinalize serves /finalize of namespaces.
func (a *API) addFinalize(e *endpoint, v *kind.Version) error {
	scope, err := a.newScope(v, "finalize", nil)
	if err != nil {
		return err
	}
	r := &finalize{patchOnly{a.newResource(v, builtin.NamespaceFinalizeStrategy())}}
	e.verbs["finalize"] = a.readWriteVerbs(r, scope, v)
	return nil
}

// finalize is a namespace's /finalize, which other controllers may call. In Kubernetes it
// removes a namespace whose content is still there; here it does not.
type finalize struct{ patchOnly }

func (f *finalize) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, force bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	checked := func(ctx context.Context, obj, old runtime.Object) error {
		if update != nil {
			if err := update(ctx, obj, old); err != nil {
				return err
			}
		}
		return f.checkEmpty(ctx, obj.(*corev1.Namespace), old.(*corev1.Namespace))
	}
	return f.patchOnly.Update(ctx, name, info, create, checked, force, options)
}

// checkEmpty refuses to release a terminating namespace that has content. The content is
// read after the namespace, and no object is created in a terminating one; so if the write
// finds the namespace unchanged, it is empty. The error is not a conflict: the controller
// of Kubernetes repeats those at once, without end.
func (f *finalize) checkEmpty(ctx context.Context, ns, old *corev1.Namespace) error {
	released := slices.Contains(old.Spec.Finalizers, corev1.FinalizerKubernetes) && !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
	if !released || old.DeletionTimestamp == nil { // a delete sets the finalizer again
		return nil
	}
	left, err := f.api.store.Reader().Kinds(ctx, ns.Name)
	if err != nil || len(left) == 0 {
		return err
	}
	return object.InvalidFields(field.ErrorList{field.Forbidden(field.NewPath("spec", "finalizers"),
		"the namespace has content, which would be left behind ("+strings.Join(left, ", ")+"); see what keeps it: exeunt why namespace/"+ns.Name)})
}
