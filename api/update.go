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

	"github.com/exeunt/exeunt/api/bodycost"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// Update computes the new object from the stored one and replaces it. PUT, PATCH
// and apply all end here. The computation runs outside the write transaction and
// is repeated if another write came first: the store's compare-and-swap on the
// revision makes this equal to one transaction.
func (r *resource) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, createValidate rest.ValidateObjectFunc, updateValidate rest.ValidateObjectUpdateFunc, forceCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	mark(ctx, stepDecoded)
	w, created, err := r.update(ctx, r.key(ctx, name), updating{
		UpdatedObjectInfo: info,
		createValidate:    createValidate, updateValidate: updateValidate,
		forceCreate: forceCreate, dryRun: dryrun.IsDryRun(options.DryRun),
	})
	mark(ctx, stepStored)
	if err != nil {
		return nil, false, err
	}
	obj, err := withVersion(w.obj, w.stored)
	return obj, created, err
}

// updating is an update to perform.
type updating struct {
	rest.UpdatedObjectInfo
	createValidate rest.ValidateObjectFunc       // not called if nil
	updateValidate rest.ValidateObjectUpdateFunc // not called if nil
	forceCreate    bool                          // a missing object is created, for every kind
	dryRun         bool
}

// written is the result of a write: the object and its stored form.
type written struct {
	obj    runtime.Object
	stored object.Object
}

func (r *resource) update(ctx context.Context, key object.Key, u updating) (w written, created bool, err error) {
	if recent, known := r.api.Store.Recent(key); known && !u.dryRun {
		w, decided, err := r.updateRecent(ctx, recent, u)
		if decided {
			return w, false, r.statusError(err, key)
		}
	}
	for {
		current, err := r.api.Store.Get(ctx, key)
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
		if isOvertaken(err) && ctx.Err() == nil {
			continue // with the current object; if it is gone, the update may become a create
		}
		return w, false, r.statusError(err, key)
	}
}

// updateRecent computes the update from the newest state that this process knows, as Kubernetes does: mostly
// it is the newest of all, and a read of the database is saved. The write compares revisions. Every other result
// is about a state that another replica may have replaced, and decides only if the database still
// has that state.
func (r *resource) updateRecent(ctx context.Context, recent object.Object, u updating) (w written, decided bool, err error) {
	n, err := r.compute(ctx, recent.Key, recent, u)
	if err == nil && !n.unchanged {
		w, err := r.swap(ctx, n)
		return w, !isOvertaken(err), err
	}
	current, getErr := r.api.Store.Get(ctx, recent.Key)
	if getErr != nil || current.Revision != recent.Revision || isOvertaken(err) {
		return written{}, false, nil
	}
	return written{n.obj, current}, true, err
}

// isOvertaken: another write came first, and the update can be computed again.
func isOvertaken(err error) bool {
	return object.Is(err, object.Conflict) && !isStale(err) || object.Is(err, object.NotFound) || errors.Is(err, object.ErrAgain)
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
	n, err := r.compute(ctx, key, current, u)
	switch {
	case err != nil:
		return written{}, err
	case n.unchanged:
		return written{n.obj, current}, nil
	}
	return r.swap(ctx, n)
}

// next is what an update has computed: the new object, and how to store it.
type next struct {
	obj       runtime.Object
	unchanged bool // it is stored already
	request   store.UpdateRequest
}

// compute computes the new object from the current one.
func (r *resource) compute(ctx context.Context, key object.Key, current object.Object, u updating) (next, error) {
	existing, err := r.decode(current)
	if err != nil {
		return next{}, err
	}
	if err := checkUID(u.Preconditions(), current.UID); err != nil {
		return next{}, stale(err)
	}
	if err := bodycost.CheckPatch(ctx, current.Body); err != nil {
		return next{}, err
	}
	obj, err := r.change(ctx, u, existing)
	if err != nil {
		return next{}, changeError(err)
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return next{}, err
	}
	if err := lifecycle.CheckVersion(accessor.GetResourceVersion(), current.ResourceVersion(), r.strategy.AllowUnconditionalUpdate(ctx)); err != nil {
		return next{}, stale(err)
	}
	var updated lifecycle.Updated
	err = r.recovering(func() error {
		updated, err = lifecycle.BeforeUpdate(ctx, r.strategy, obj, existing, lifecycle.Change{Namespace: genericrequest.NamespaceValue(ctx)})
		return err
	})
	if err != nil {
		return next{}, err
	}
	for _, w := range updated.Warnings {
		warning.AddWarning(ctx, "", w)
	}
	// A write that changes only the time of a managed field changes nothing.
	if obj, err = fieldmanager.IgnoreManagedFieldsTimestampsTransformer(ctx, obj, existing); err != nil {
		return next{}, err
	}
	if u.updateValidate != nil {
		if err := u.updateValidate(ctx, obj, existing); err != nil {
			return next{}, err
		}
	}
	if err := r.permitWrite(ctx, obj, existing); err != nil {
		return next{}, err
	}
	var with []store.CreateRequest
	if !updated.Remove {
		if with, err = r.attach(ctx, obj, existing); err != nil {
			return next{}, err
		}
	}
	n, err := r.encode(ctx, key, current, obj, with, updated.Remove, u.dryRun)
	if err == nil && !u.dryRun && r.api.isFull() && !r.fits(ctx, existing, accessor, current.Body, n.request.Body) {
		return next{}, errFull
	}
	return n, err
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

// fits reports whether an update is accepted while the disk is full. One that removes a finalizer is. Others must not make the
// object longer, unless it is being deleted or a controller reports its status, and together they have a rate: each
// of them writes the whole object, so that one client could use up what is kept for deletions.
func (r *resource) fits(ctx context.Context, existing runtime.Object, now metav1.Object, before, after []byte) bool {
	was, err := meta.Accessor(existing)
	if err == nil && len(now.GetFinalizers()) < len(was.GetFinalizers()) || bytes.Equal(before, after) {
		return true
	}
	info, ok := genericrequest.RequestInfoFrom(ctx)
	grows := len(after) > len(before) && now.GetDeletionTimestamp() == nil && !(ok && info.Subresource == "status")
	return !grows && r.api.whileFull.AllowN(r.api.Now(), len(after))
}

// encode returns the request that replaces the current object.
func (r *resource) encode(ctx context.Context, key object.Key, current object.Object, obj runtime.Object, with []store.CreateRequest, remove, dryRun bool) (next, error) {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return next{}, err
	}
	body, err := r.v.Encode(obj)
	if err != nil {
		return next{}, err
	}
	// An object that was stored before the depth limit existed can still be
	// updated: otherwise its finalizers could not be removed.
	if err := object.CheckDepth(body); err != nil && object.CheckDepth(current.Body) == nil {
		return next{}, err
	}
	if removable := r.v.Kind.Rules.Removable; remove && removable != nil {
		remove = removable(body)
	}
	return next{obj, !remove && bytes.Equal(body, current.Body), store.UpdateRequest{
		Key:        key,
		IfRevision: current.Revision,
		Meta:       object.MetaOf(accessor),
		Body:       body,
		Remove:     remove,
		With:       with,
		DryRun:     dryRun,
		Actor:      clientName(ctx),
	}}, nil
}

// swap replaces the object, unless another write came first.
func (r *resource) swap(ctx context.Context, n next) (written, error) {
	o, err := r.api.Store.Update(ctx, n.request)
	return written{n.obj, o}, err
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
