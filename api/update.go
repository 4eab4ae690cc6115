package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/handlers/fieldmanager"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"
	"k8s.io/apiserver/pkg/warning"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// Update computes the new object from the stored one and swaps them. PUT,
// PATCH and apply all end here. The computation runs outside the write
// transaction and is repeated when another write came between: the store's
// compare-and-swap on the revision makes that equal to one transaction.
func (r *resource) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, createValidate rest.ValidateObjectFunc, updateValidate rest.ValidateObjectUpdateFunc, forceCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	key := r.key(ctx, name)
	dryRun := dryrun.IsDryRun(options.DryRun)
	for {
		current, err := r.api.store.Get(ctx, key)
		if object.Is(err, object.NotFound) && (forceCreate || r.strategy.AllowCreateOnUpdate(ctx)) {
			obj, err := r.createByUpdate(ctx, key, info, createValidate, dryRun)
			if apierrors.IsAlreadyExists(err) && ctx.Err() == nil {
				continue // somebody created it meanwhile: it is an update after all
			}
			return obj, true, err
		}
		if err != nil {
			return nil, false, r.statusError(err, key)
		}
		obj, err := r.updateOnce(ctx, key, current, info, updateValidate, dryRun)
		overtaken := object.Is(err, object.Conflict) && !isStale(err) || object.Is(err, object.NotFound)
		if overtaken && ctx.Err() == nil {
			continue // against what is there now; if that is nothing, it may be a create
		}
		return obj, false, r.statusError(err, key)
	}
}

// staleError is a conflict that repeating cannot mend: the caller named a
// version or a uid that is not the object's.
type staleError struct{ cause *object.Error }

func (e staleError) Error() string { return e.cause.Error() }

func (e staleError) Unwrap() error { return e.cause }

func isStale(err error) bool {
	_, ok := err.(staleError)
	return ok
}

func stale(err error) error {
	if known, ok := err.(*object.Error); ok && known.Code == object.Conflict {
		return staleError{known}
	}
	return err
}

func (r *resource) updateOnce(ctx context.Context, key object.Key, current object.Object, info rest.UpdatedObjectInfo, validate rest.ValidateObjectUpdateFunc, dryRun bool) (runtime.Object, error) {
	existing, err := r.decode(current)
	if err != nil {
		return nil, err
	}
	if err := checkUID(info.Preconditions(), current.UID); err != nil {
		return nil, stale(err)
	}
	obj, err := r.change(ctx, info, existing)
	if err != nil {
		return nil, badChange(err)
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	if err := lifecycle.CheckVersion(accessor.GetResourceVersion(), current.ResourceVersion(), r.strategy.AllowUnconditionalUpdate(ctx)); err != nil {
		return nil, stale(err)
	}
	var updated lifecycle.Updated
	err = r.attempt(func() error {
		updated, err = lifecycle.BeforeUpdate(ctx, r.strategy, obj, existing, lifecycle.Change{Namespace: genericrequest.NamespaceValue(ctx)})
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, w := range updated.Warnings {
		warning.AddWarning(ctx, "", w)
	}
	// A change of nothing but a managed field's time is no change.
	if obj, err = fieldmanager.IgnoreManagedFieldsTimestampsTransformer(ctx, obj, existing); err != nil {
		return nil, err
	}
	if validate != nil {
		if err := validate(ctx, obj, existing); err != nil {
			return nil, err
		}
	}
	return r.swap(ctx, key, current, obj, updated.Remove, dryRun)
}

// change computes the new object.
func (r *resource) change(ctx context.Context, info rest.UpdatedObjectInfo, existing runtime.Object) (obj runtime.Object, err error) {
	err = r.attempt(func() error {
		obj, err = info.UpdatedObject(ctx, existing)
		return err
	})
	return obj, err
}

// badChange is why a change cannot be computed. The library words most of it;
// what it leaves bare (an unknown directive in a patch) is the caller's fault
// too: the object that it was to be applied to is sound.
func badChange(err error) error {
	var status apierrors.APIStatus
	var refused *object.Error
	if errors.As(err, &status) || errors.As(err, &refused) {
		return err
	}
	return object.BadRequestf("the change cannot be applied: %v", err)
}

func (r *resource) swap(ctx context.Context, key object.Key, current object.Object, obj runtime.Object, remove, dryRun bool) (runtime.Object, error) {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	body, err := r.v.Encode(obj)
	if err != nil {
		return nil, err
	}
	if removable := r.v.Kind.Rules.Removable; remove && removable != nil {
		remove = removable(body)
	}
	if !remove && bytes.Equal(body, current.Body) {
		accessor.SetResourceVersion(current.ResourceVersion())
		return obj, nil
	}
	o, err := r.api.store.Update(ctx, store.UpdateRequest{
		Key:        key,
		IfRevision: current.Revision,
		Meta:       objectMeta(accessor),
		Body:       body,
		Remove:     remove,
		DryRun:     dryRun,
		Actor:      callerName(ctx),
	})
	if err != nil {
		return nil, err
	}
	return withVersion(obj, o)
}

func (r *resource) createByUpdate(ctx context.Context, key object.Key, info rest.UpdatedObjectInfo, validate rest.ValidateObjectFunc, dryRun bool) (runtime.Object, error) {
	if p := info.Preconditions(); p != nil && p.UID != nil {
		return nil, r.statusError(object.Errorf(object.Conflict, "Precondition failed: UID in precondition: %v, UID in object meta: ", *p.UID), key)
	}
	obj, err := r.change(ctx, info, r.v.New())
	if err != nil {
		return nil, r.statusError(badChange(err), key)
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return nil, r.internalError(err)
	}
	if version := accessor.GetResourceVersion(); version != "" && version != "0" {
		// The caller updates a version of something that is gone.
		return nil, r.statusError(object.Errorf(object.NotFound, "%s not found", key), key)
	}
	accessor.SetResourceVersion("")
	o, err := r.create(ctx, obj, validate, dryRun)
	if err != nil {
		return nil, err
	}
	return withVersion(obj, o)
}

func checkUID(p *metav1.Preconditions, uid types.UID) error {
	if p == nil || p.UID == nil || *p.UID == uid {
		return nil
	}
	return object.Errorf(object.Conflict, "%s", fmt.Sprintf("Precondition failed: UID in precondition: %v, UID in object meta: %v", *p.UID, uid))
}
