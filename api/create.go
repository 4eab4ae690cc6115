package api

import (
	"context"
	"errors"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"
	"k8s.io/apiserver/pkg/warning"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// generateAttempts limits how many names generateName tries when a name is taken.
const generateAttempts = 8

// Create passes a new object through the lifecycle and stores it.
func (r *resource) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	mark(ctx, stepDecoded)
	o, err := r.create(ctx, obj, validate, dryrun.IsDryRun(options.DryRun))
	mark(ctx, stepStored)
	if err != nil {
		return nil, err
	}
	return withVersion(obj, o)
}

// create stores obj and leaves in obj what it stored.
func (r *resource) create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, dryRun bool) (object.Object, error) {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return object.Object{}, r.internalError(err)
	}
	if refuse := r.v.Kind.Refuse; refuse != "" {
		return object.Object{}, r.statusError(object.Errorf(object.Forbidden, "%s", refuse), r.key(ctx, accessor.GetName()))
	}
	if !dryRun && r.api.isFull() {
		return object.Object{}, errFull
	}
	generated := accessor.GetName() == "" && accessor.GetGenerateName() != ""
	var sent runtime.Object // before Kind.Attach completes it
	if r.v.Kind.Attach != nil {
		sent = obj.DeepCopyObject()
	}
	for attempt := 1; ; attempt++ {
		if sent != nil && attempt > 1 {
			reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(sent.DeepCopyObject()).Elem())
		}
		if generated {
			accessor.SetName("")
		}
		o, err := r.createOnce(ctx, obj, validate, dryRun)
		taken := object.Is(err, object.AlreadyExists) || object.Is(err, object.BeingDeleted)
		if (generated && taken || errors.Is(err, object.ErrAgain)) && attempt < generateAttempts {
			continue
		}
		return o, r.statusError(err, r.key(ctx, accessor.GetName()))
	}
}

func (r *resource) createOnce(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, dryRun bool) (object.Object, error) {
	var made object.New
	var warnings []string
	err := r.recovering(func() (err error) {
		made, warnings, err = r.v.Prepare(ctx, r.strategy, obj, lifecycle.Creation{
			Namespace: genericrequest.NamespaceValue(ctx),
			Now:       r.api.Now(),
			UID:       object.NewUID(),
			Suffix:    utilrand.String(5),
			DryRun:    dryRun,
		}, func(ctx context.Context, obj runtime.Object) error {
			if validate != nil {
				if err := validate(ctx, obj); err != nil {
					return err
				}
			}
			return r.permitWrite(ctx, obj, nil)
		})
		return err
	})
	for _, w := range warnings {
		warning.AddWarning(ctx, "", w)
	}
	if err != nil {
		return object.Object{}, err
	}
	request := store.RequestFor(made)
	request.DryRun = dryRun
	return r.api.Store.Create(ctx, request)
}

// withVersion sets the resourceVersion that the store assigned.
func withVersion(obj runtime.Object, o object.Object) (runtime.Object, error) {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	if o.Revision > 0 { // a dry run has none
		accessor.SetResourceVersion(o.ResourceVersion())
	}
	return obj, nil
}
