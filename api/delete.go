package api

import (
	"bytes"
	"context"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"
	"k8s.io/apiserver/pkg/warning"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// deleteBatch is how many objects a collection delete reads at a time.
const deleteBatch = 500

// Delete asks for the end of an object. The answer is the object while it
// lingers (grace or finalizers), and a Status with its uid once it is gone.
func (r *resource) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	result, err := r.delete(ctx, r.key(ctx, name), options, "")
	if err != nil {
		return nil, false, err
	}
	gone := result.Outcome == lifecycle.Remove
	if gone && !r.v.Kind.ReturnsDeleted {
		return r.deletedStatus(result.Object), true, nil
	}
	obj, err := r.decode(result.Object)
	return obj, gone, err
}

// GetCorruptObjDeleter serves the option that removes what can no longer be
// read. A delete here decides from metadata alone and works on such an object
// too, so nothing is left for the option to do.
func (r *resource) GetCorruptObjDeleter() rest.GracefulDeleter { return refuseUnsafe{} }

type refuseUnsafe struct{}

func (refuseUnsafe) Delete(_ context.Context, name string, _ rest.ValidateObjectFunc, _ *metav1.DeleteOptions) (runtime.Object, bool, error) {
	option := field.NewPath("ignoreStoreReadErrorWithClusterBreakingPotential")
	return nil, false, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, name, field.ErrorList{
		field.Invalid(option, true, "is exclusively used to delete corrupt object(s), try again by removing this option"),
	})
}

// delete asks the store. An empty cascade is one of the object's own.
func (r *resource) delete(ctx context.Context, key object.Key, options *metav1.DeleteOptions, cascade string) (store.DeleteResult, error) {
	if options == nil {
		options = metav1.NewDeleteOptions(0)
	}
	if w := r.v.Kind.OrphanWarning; w != "" && options.PropagationPolicy == nil && options.OrphanDependents == nil {
		warning.AddWarning(ctx, "", w)
	}
	result, err := r.api.store.Delete(ctx, store.DeleteRequest{
		Key:     key,
		Options: *options,
		Rules:   r.v.Kind.Rules,
		DryRun:  dryrun.IsDryRun(options.DryRun),
		Actor:   callerName(ctx),
		Cascade: cascade,

		Guarded: true, MaxCascade: r.api.maxCascade,
	})
	if err == nil && result.Outcome == lifecycle.Mark {
		r.warnHeld(ctx, result.Object, options)
	}
	return result, r.statusError(err, key)
}

var held = []byte(`"` + lifecycle.HeldAbove + `":`)

// warnHeld tells the caller when the guard will hold the deletion, or would if
// this were no dry run. The collector decides; this is a look ahead.
func (r *resource) warnHeld(ctx context.Context, o object.Object, options *metav1.DeleteOptions) {
	if r.api.foresee == nil || !bytes.Contains(o.Body, held) {
		return
	}
	text, err := r.api.foresee(ctx, o, options)
	if err != nil {
		r.api.log.Warn("cascade cannot be foreseen", "object", o.Key.String(), "error", err)
		return
	}
	if text != "" {
		warning.AddWarning(ctx, "", text)
	}
}

// callerName is who asks, for the archive.
func callerName(ctx context.Context) string {
	if caller, ok := genericrequest.UserFrom(ctx); ok {
		return caller.GetName()
	}
	return ""
}

func (r *resource) deletedStatus(o object.Object) *metav1.Status {
	gr := r.v.Resource().GroupResource()
	return &metav1.Status{
		Status: metav1.StatusSuccess,
		// Kind is the resource's name here: that is what clients have come to expect.
		Details: &metav1.StatusDetails{Name: o.Name, Group: gr.Group, Kind: gr.Resource, UID: o.UID},
	}
}

// DeleteCollection deletes what a list selects, in batches, each object on its
// own: never one giant transaction. They are one cascade. It answers with what
// it deleted.
func (r *resource) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions, list *metainternal.ListOptions) (runtime.Object, error) {
	page := *list
	if page.Limit == 0 {
		page.Limit = deleteBatch
	}
	collected := listBuilder{list: r.v.NewList()}
	cascade := uuid.NewString()
	for {
		listed, err := r.list(ctx, &page)
		if err != nil {
			return nil, err
		}
		for _, o := range listed.objects {
			if err := ctx.Err(); err != nil {
				return nil, r.internalError(err)
			}
			if err := r.deleteListed(ctx, o, options, cascade); err != nil {
				return nil, err
			}
			obj, err := r.decode(o)
			if err != nil {
				return nil, err
			}
			collected.items = append(collected.items, obj)
		}
		if listed.next == "" || list.Limit > 0 {
			return collected.finish(listed)
		}
		page.Continue, page.ResourceVersion, page.ResourceVersionMatch = listed.next, "", ""
	}
}

// deleteListed deletes one object of a collection. One that is gone already is
// no error; the options' preconditions hold for each.
func (r *resource) deleteListed(ctx context.Context, o object.Object, options *metav1.DeleteOptions, cascade string) error {
	_, err := r.delete(ctx, o.Key, options.DeepCopy(), cascade)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
