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

// Update computes the new object from the stored one and replaces it. PUT, PATCH
// and apply all end here. The computation runs outside the write transaction and
// is repeated if another write came first: the store's compare-and-swap on the
// revision makes this equal to one transaction.
func (r *resource) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, createValidate rest.ValidateObjectFunc, updateValidate rest.ValidateObjectUpdateFunc, forceCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	markIn(ctx, stepDecoded)
	w, created, err := r.update(ctx, r.key(ctx, name), updating{
		UpdatedObjectInfo: info,
		createValidate:    createValidate, updateValidate: updateValidate,
		forceCreate: forceCreate, dryRun: dryrun.IsDryRun(options.DryRun),
	})
	markIn(ctx, stepStored)
	if err != nil {
		return nil, false, err
	}
	obj, err := withVersion(w.obj, w.stored)
	return obj, created, err
}

// updating is an update to perform.
type updating struct {
	rest.UpdatedObjectInfo
	createValidate rest.ValidateObjectFunc       // nil: no check
	updateValidate rest.ValidateObjectUpdateFunc // nil: no check
	forceCreate    bool                          // a missing object is created, for every kind
	dryRun         bool
}

// written is the result of a write: the object and its stored form.
type written struct {
	obj    runtime.Object
	stored object.Object
}

func (r *resource) update(ctx context.Context, key object.Key, u updating) (w written, created bool, err error) {
	for {
		current, err := r.api.store.Get(ctx, key)
		if object.Is(err, object.NotFound) && (u.forceCreate || r.strategy.AllowCreateOnUpdate(ctx)) {
			w, err := r.createByUpdate(ctx, key, u)
			if apierrors.IsAlreadyExists(err) && ctx.Err() == nil {
				continue // another client created it meanwhile: now it is an update
			}
			return w, true, err
		}
		if err != nil {
			return written{}, false, r.statusError(err, key)
		}
		w, err := r.updateOnce(ctx, key, current, u)
		overtaken := object.Is(err, object.Conflict) && !isStale(err) || object.Is(err, object.NotFound) || errors.Is(err, object.ErrAgain)
		if overtaken && ctx.Err() == nil {
			continue // with the current object; if it is gone, the update may become a create
		}
		return w, false, r.statusError(err, key)
	}
}

// staleError is a conflict that a retry cannot solve: the client named a version or
// a uid that is not the object's.
type staleError struct{ cause *object.Error }

func (e staleError) Error() string { return e.cause.Error() }

func (e staleError) Unwrap() error { return e.cause }

func isStale(err error) bool {
	var s staleError
	return errors.As(err, &s)
}

func stale(err error) error {
	var known *object.Error
	if errors.As(err, &known) && known.Code == object.Conflict {
		return staleError{known}
	}
	return err
}

func (r *resource) updateOnce(ctx context.Context, key object.Key, current object.Object, u updating) (written, error) {
	existing, err := r.decode(current)
	if err != nil {
		return written{}, err
	}
	if err := checkUID(u.Preconditions(), current.UID); err != nil {
		return written{}, stale(err)
	}
	if err := checkPatchWork(ctx, current.Body); err != nil {
		return written{}, err
	}
	obj, err := r.change(ctx, u, existing)
	if err != nil {
		return written{}, changeError(err)
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return written{}, err
	}
	if err := lifecycle.CheckVersion(accessor.GetResourceVersion(), current.ResourceVersion(), r.strategy.AllowUnconditionalUpdate(ctx)); err != nil {
		return written{}, stale(err)
	}
	var updated lifecycle.Updated
	err = r.recovering(func() error {
		updated, err = lifecycle.BeforeUpdate(ctx, r.strategy, obj, existing, lifecycle.Change{Namespace: genericrequest.NamespaceValue(ctx)})
		return err
	})
	if err != nil {
		return written{}, err
	}
	for _, w := range updated.Warnings {
		warning.AddWarning(ctx, "", w)
	}
	// A write that changes only the time of a managed field changes nothing.
	if obj, err = fieldmanager.IgnoreManagedFieldsTimestampsTransformer(ctx, obj, existing); err != nil {
		return written{}, err
	}
	if u.updateValidate != nil {
		if err := u.updateValidate(ctx, obj, existing); err != nil {
			return written{}, err
		}
	}
	if err := r.permitWrite(ctx, obj, existing); err != nil {
		return written{}, err
	}
	var with []store.CreateRequest
	if !updated.Remove {
		if with, err = r.attach(ctx, obj, existing); err != nil {
			return written{}, err
		}
	}
	return r.swap(ctx, key, current, obj, with, updated.Remove, u.dryRun)
}

// attach completes an updated object, and returns what its transaction creates.
func (r *resource) attach(ctx context.Context, obj, existing runtime.Object) (with []store.CreateRequest, err error) {
	if r.v.Kind.Attach == nil {
		return nil, nil
	}
	attached, err := r.v.Kind.Attach(ctx, obj, existing)
	if err != nil {
		return nil, err
	}
	for _, w := range attached.Warnings {
		warning.AddWarning(ctx, "", w)
	}
	for _, n := range attached.Objects {
		with = append(with, store.RequestFor(n))
	}
	return with, nil
}

// change computes the new object.
func (r *resource) change(ctx context.Context, info rest.UpdatedObjectInfo, existing runtime.Object) (obj runtime.Object, err error) {
	err = r.recovering(func() error {
		obj, err = info.UpdatedObject(ctx, existing)
		return err
	})
	return obj, err
}

// changeError turns an error of the computation into a client error. The library
// reports most errors as a Status. The others (an unknown directive in a patch)
// are the client's fault too, because the stored object is valid.
func changeError(err error) error {
	var status apierrors.APIStatus
	var refused *object.Error
	if errors.As(err, &status) || errors.As(err, &refused) {
		return err
	}
	return object.BadRequestf("the change cannot be applied: %v", err)
}

func (r *resource) swap(ctx context.Context, key object.Key, current object.Object, obj runtime.Object, with []store.CreateRequest, remove, dryRun bool) (written, error) {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return written{}, err
	}
	body, err := r.v.Encode(obj)
	if err != nil {
		return written{}, err
	}
	// An object that was stored before the depth limit existed can still be
	// updated: otherwise its finalizers could not be removed.
	if err := object.CheckDepth(body); err != nil && object.CheckDepth(current.Body) == nil {
		return written{}, err
	}
	if removable := r.v.Kind.Rules.Removable; remove && removable != nil {
		remove = removable(body)
	}
	if !remove && bytes.Equal(body, current.Body) {
		return written{obj, current}, nil
	}
	o, err := r.api.store.Update(ctx, store.UpdateRequest{
		Key:        key,
		IfRevision: current.Revision,
		Meta:       object.MetaOf(accessor),
		Body:       body,
		Remove:     remove,
		With:       with,
		DryRun:     dryRun,
		Actor:      clientName(ctx),
	})
	return written{obj, o}, err
}

func (r *resource) createByUpdate(ctx context.Context, key object.Key, u updating) (written, error) {
	if p := u.Preconditions(); p != nil && p.UID != nil {
		return written{}, r.statusError(object.Errorf(object.Conflict, "Precondition failed: UID in precondition: %v, UID in object meta: ", *p.UID), key)
	}
	if err := r.permitCreate(ctx, key.Name); err != nil {
		return written{}, err
	}
	obj, err := r.change(ctx, u, r.v.New())
	if err != nil {
		return written{}, r.statusError(changeError(err), key)
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return written{}, r.internalError(err)
	}
	if version := accessor.GetResourceVersion(); version != "" && version != "0" {
		// The client updates a version of an object that is gone.
		return written{}, r.statusError(object.Errorf(object.NotFound, "%s not found", key), key)
	}
	accessor.SetResourceVersion("")
	o, err := r.create(ctx, obj, u.createValidate, u.dryRun)
	return written{obj, o}, err
}

func checkUID(p *metav1.Preconditions, uid types.UID) error {
	if p == nil || p.UID == nil || *p.UID == uid {
		return nil
	}
	return object.Errorf(object.Conflict, "%s", fmt.Sprintf("Precondition failed: UID in precondition: %v, UID in object meta: %v", *p.UID, uid))
}
