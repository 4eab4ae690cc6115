package definition

import (
	"context"
	"errors"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// cleanupFinalizer keeps a definition until its objects are gone.
const cleanupFinalizer = apiextensionsv1.CustomResourceCleanupFinalizer

func hasFinalizer(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.Contains(crd.Finalizers, cleanupFinalizer)
}

// clean deletes the objects of a definition that is being deleted, waits until their
// finalizers are removed, and then removes the definition's own finalizer. A crash is
// harmless: the finalizer stays, and the next start cleans again. New objects cannot
// appear meanwhile: creates are refused as soon as a replica sees that the definition
// is terminating, and the last check and the removal of the finalizer are repeated if
// the definition changed in between.
func (c *Controller) clean(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) {
	wait := 10 * time.Millisecond
	for {
		left, err := c.deleteInstances(ctx, storageName(crd), crd.UID)
		if err == nil && left == 0 {
			err = c.release(ctx, crd)
			if err == nil {
				return
			}
		}
		if err != nil && !errors.Is(err, errChanged) && ctx.Err() == nil {
			c.log.Error("definition cannot be emptied yet", "name", crd.Name, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
			wait = min(wait*2, time.Second)
		}
	}
}

// deleteInstances deletes every object, in the definition's cascade, and returns how
// many it found. A definition with the name of a built-in kind is never served: the
// objects under that name are not its own.
func (c *Controller) deleteInstances(ctx context.Context, storage string, definition types.UID) (int, error) {
	if c.builtin[storage] {
		return 0, nil
	}
	var keys []object.Key
	listing, err := c.store.List(ctx, store.ListRequest{Kind: storage})
	if err != nil {
		return 0, err
	}
	for listing.Next() {
		keys = append(keys, listing.Object().Key)
	}
	err = listing.Err()
	if err != nil || len(keys) == 0 {
		return len(keys), err
	}
	origin, err := c.store.OriginOf(ctx, definition)
	background := metav1.DeletePropagationBackground
	for _, key := range keys {
		if err != nil {
			return len(keys), err
		}
		_, err = c.store.Delete(ctx, store.DeleteRequest{
			Key: key, Options: metav1.DeleteOptions{PropagationPolicy: &background},
			Actor: "system:definition-controller", Cascade: origin.Cascade, Requester: origin.Requester, RequestID: origin.RequestID,
		})
		if object.Is(err, object.NotFound) {
			err = nil
		}
	}
	return len(keys), err
}

// release removes our finalizer. If no other is left, it removes the definition.
func (c *Controller) release(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	o, err := c.store.Get(ctx, object.Key{Kind: c.crds.Kind.Storage, Name: crd.Name})
	if object.Is(err, object.NotFound) || err == nil && o.UID != crd.UID {
		return nil
	}
	if err != nil {
		return err
	}
	decoded, err := c.crds.Decode(o.Body, o.ResourceVersion())
	if err != nil {
		return err
	}
	current := decoded.(*apiextensionsv1.CustomResourceDefinition)
	current.Finalizers = slices.DeleteFunc(current.Finalizers, func(f string) bool { return f == cleanupFinalizer })
	err = c.write(ctx, current, o.Revision, len(current.Finalizers) == 0)
	if object.Is(err, object.Conflict) {
		return errChanged // the definition changed: check again
	}
	return err
}
