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

// cleanupFinalizer holds a definition until its objects are gone.
const cleanupFinalizer = apiextensionsv1.CustomResourceCleanupFinalizer

func hasFinalizer(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.Contains(crd.Finalizers, cleanupFinalizer)
}

// clean deletes the objects of a definition that is being deleted, waits until
// their own finalizers have let them go, and then lets the definition go.
// A crash anywhere is harmless: the finalizer stays, and the next start cleans
// again. New objects cannot appear meanwhile: creates are refused from the
// moment the definition is seen to be terminating, and the last look and the
// removal of the finalizer are repeated if the definition changed in between.
func (c *Controller) clean(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) {
	defer c.cleaning.Done()
	wait := 10 * time.Millisecond
	for {
		left, err := c.deleteInstances(ctx, storageName(crd), crd.UID)
		if err == nil && left == 0 {
			err = c.release(ctx, crd)
			if err == nil {
				return
			}
		}
		if err != nil && !errors.Is(err, errAgain) && ctx.Err() == nil {
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

// deleteInstances deletes every object, in the definition's cascade, and
// says how many there were. A definition that bears a built-in kind's name was
// never served: the objects under that name are not its own.
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
	cascade, requester, err := c.store.CascadeOf(ctx, definition)
	background := metav1.DeletePropagationBackground
	for _, key := range keys {
		if err != nil {
			return len(keys), err
		}
		_, err = c.store.Delete(ctx, store.DeleteRequest{
			Key: key, Options: metav1.DeleteOptions{PropagationPolicy: &background},
			Actor: "system:definition-controller", Cascade: cascade, Requester: requester,
		})
		if object.Is(err, object.NotFound) {
			err = nil
		}
	}
	return len(keys), err
}

// release removes our finalizer, and with the last one the definition.
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
		return errAgain // look again
	}
	return err
}
