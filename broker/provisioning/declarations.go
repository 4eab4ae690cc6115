package provisioning

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/broker/reconcile"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// Find reads a declaration: reconcile.Declarations.
func (a *API) Find(ctx context.Context, id broker.ProvisionedResourceID) (reconcile.Declaration, bool, error) {
	o, err := a.at(ctx, a.resources, string(id))
	if err != nil || o == nil {
		return reconcile.Declaration{}, false, err
	}
	var r resource
	if err := json.Unmarshal(o.Body, &r); err != nil {
		return reconcile.Declaration{}, false, fmt.Errorf("read %s: %w", o.Key, err)
	}
	return reconcile.Declaration{Request: r.request(), Deleting: r.Metadata.DeletionTimestamp != nil}, true, nil
}

// Show writes the status of a declaration: reconcile.Declarations. An error
// that is new in the status becomes an Event as well.
func (a *API) Show(ctx context.Context, id broker.ProvisionedResourceID, view reconcile.View) error {
	var about object.Object
	news := false
	err := a.change(ctx, a.resources, string(id), func(u *unstructured.Unstructured) {
		was, _, _ := unstructured.NestedMap(u.Object, "status")
		u.Object["status"] = status(view, was, u.GetGeneration(), a.now())
		news = view.Error != "" && view.Error != lastError(was)
		about = object.Object{Key: object.Key{Kind: ResourceStorage, Namespace: u.GetNamespace(), Name: u.GetName()}, UID: u.GetUID()}
	})
	if err != nil || !news {
		return err
	}
	return a.recordFailure(ctx, about, view)
}

// Release removes the finalizer: reconcile.Declarations.
func (a *API) Release(ctx context.Context, id broker.ProvisionedResourceID) error {
	return a.change(ctx, a.resources, string(id), dropFinalizer(TeardownFinalizer))
}

func dropFinalizer(name string) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		u.SetFinalizers(slices.DeleteFunc(u.GetFinalizers(), func(f string) bool { return f == name }))
	}
}

// change rewrites an object, with retries on conflicts, and removes it if it
// has lost its last finalizer. change does nothing if the object is gone or
// stays the same.
func (a *API) change(ctx context.Context, v *kind.Version, uid string, fn func(*unstructured.Unstructured)) error {
	for {
		o, err := a.at(ctx, v, uid)
		if err != nil || o == nil {
			return err
		}
		err = a.changeOnce(ctx, v, *o, fn)
		switch {
		case object.Is(err, object.Conflict) && ctx.Err() == nil:
			continue
		case object.Is(err, object.NotFound):
			return nil
		}
		return err
	}
}

func (a *API) changeOnce(ctx context.Context, v *kind.Version, o object.Object, fn func(*unstructured.Unstructured)) error {
	decoded, err := v.Decode(o.Body, o.ResourceVersion())
	if err != nil {
		return fmt.Errorf("read %s: %w", o.Key, err)
	}
	was, ok := decoded.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("read %s: a %T", o.Key, decoded)
	}
	next := was.DeepCopy()
	fn(next)
	body, err := v.Encode(next)
	if err != nil {
		return fmt.Errorf("write %s: %w", o.Key, err)
	}
	m, err := meta.Accessor(next)
	if err != nil {
		return err
	}
	_, err = a.store.Update(ctx, store.UpdateRequest{
		Key: o.Key, IfRevision: o.Revision, Body: body, Actor: actor,
		Meta: metav1.ObjectMeta{
			Name: m.GetName(), Namespace: m.GetNamespace(), UID: m.GetUID(), Finalizers: m.GetFinalizers(),
			OwnerReferences: m.GetOwnerReferences(), Labels: m.GetLabels(), Annotations: m.GetAnnotations(),
			DeletionTimestamp: m.GetDeletionTimestamp(), DeletionGracePeriodSeconds: m.GetDeletionGracePeriodSeconds(),
		},
		Remove: lifecycle.LastFinalizerGone(next, was),
	})
	return err
}

// actor is the broker's user name.
const actor = "system:broker"
