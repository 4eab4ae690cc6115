package api

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/apihelpers"
	"k8s.io/apiserver/pkg/util/dryrun"
	"k8s.io/apiserver/pkg/warning"

	"github.com/exeunt/exeunt/api/record"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// Delete deletes an object. The answer is the object while it still exists
// (grace period or finalizers), and a Status with its uid once it is removed.
func (r *resource) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	mark(ctx, stepDecoded)
	result, err := r.deleteAdmitted(ctx, r.key(ctx, name), validate, options, "")
	mark(ctx, stepStored)
	if err != nil {
		return nil, false, err
	}
	r.recordDeletion(ctx, result, options)
	gone := result.Outcome == lifecycle.Remove
	if gone && !r.v.Kind.ReturnsDeleted {
		return r.deletedStatus(result.Object), true, nil
	}
	obj, err := r.decode(result.Object)
	if err != nil && r.v.DecodeAll != nil {
		// The delete is committed. A conversion webhook that is down hides only its result.
		return r.deletedStatus(result.Object), gone, nil
	}
	return obj, gone, err
}

// GetCorruptObjDeleter serves the option that deletes objects that cannot be
// decoded. Here every delete decides from metadata alone and also removes such
// objects, so the option is refused as in Kubernetes for a sound object.
func (r *resource) GetCorruptObjDeleter() rest.GracefulDeleter { return refuseUnsafe{} }

type refuseUnsafe struct{}

func (refuseUnsafe) Delete(_ context.Context, name string, _ rest.ValidateObjectFunc, _ *metav1.DeleteOptions) (runtime.Object, bool, error) {
	option := field.NewPath("ignoreStoreReadErrorWithClusterBreakingPotential")
	return nil, false, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, name, field.ErrorList{
		field.Invalid(option, true, "is exclusively used to delete corrupt object(s), try again by removing this option"),
	})
}

// deleteAdmitted asks webhooks and policies about the object as it is, and deletes that
// version of it. If another write comes first, they are asked again.
func (r *resource) deleteAdmitted(ctx context.Context, key object.Key, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions, cascade string) (store.DeleteResult, error) {
	if validate == nil || !r.admits("delete", key.Namespace) {
		return r.delete(ctx, key, options, cascade)
	}
	if options == nil {
		options = metav1.NewDeleteOptions(0)
	}
	for {
		current, err := r.api.Store.Get(ctx, key)
		if err != nil {
			return store.DeleteResult{}, r.statusError(err, key)
		}
		obj, err := r.decode(current)
		if err != nil {
			return store.DeleteResult{}, err
		}
		if err := validate(ctx, obj); err != nil {
			return store.DeleteResult{}, err
		}
		exact := options.DeepCopy()
		if exact.Preconditions == nil {
			exact.Preconditions = &metav1.Preconditions{}
		}
		theirs := exact.Preconditions.ResourceVersion
		if theirs == nil {
			version := current.ResourceVersion()
			exact.Preconditions.ResourceVersion = &version
		}
		result, err := r.delete(ctx, key, exact, cascade)
		if theirs != nil || !apierrors.IsConflict(err) || ctx.Err() != nil {
			return result, err
		}
		if uid := exact.Preconditions.UID; uid != nil && *uid != current.UID {
			return result, err // no retry can meet the client's own precondition
		}
	}
}

// delete calls the store. With an empty cascade the object starts its own.
func (r *resource) delete(ctx context.Context, key object.Key, options *metav1.DeleteOptions, cascade string) (store.DeleteResult, error) {
	if options == nil {
		options = metav1.NewDeleteOptions(0)
	}
	r.warnOrphans(ctx, options)
	request := r.deleteRequest(ctx, key, options, cascade)
	result, err := r.api.Store.Delete(ctx, request)
	result, err = r.removeMarked(ctx, request, result, err)
	return result, r.afterDelete(ctx, key, options, result, err)
}

// removeMarked removes an object that its rules have only marked before: see
// lifecycle.Rules.MarkFirst. Who was faster may have removed it.
func (r *resource) removeMarked(ctx context.Context, request store.DeleteRequest, marked store.DeleteResult, err error) (store.DeleteResult, error) {
	if err != nil || !request.Rules.MarkFirst || marked.Outcome != lifecycle.Mark {
		return marked, err
	}
	m, err := object.ParseMeta(marked.Object.Body)
	if err != nil || !lifecycle.RemoveNow(marked.Object.Body, m, request.Rules) {
		return marked, err
	}
	request.Options.Preconditions = &metav1.Preconditions{UID: &marked.Object.UID}
	result, err := r.api.Store.Delete(ctx, request)
	if object.Is(err, object.NotFound) || object.Is(err, object.Conflict) {
		result, err = marked, nil
		result.Outcome = lifecycle.Remove
	}
	result.Again = marked.Again
	return result, err
}

func (r *resource) warnOrphans(ctx context.Context, options *metav1.DeleteOptions) {
	if w := r.v.Kind.OrphanWarning; w != "" && options.PropagationPolicy == nil && options.OrphanDependents == nil {
		warning.AddWarning(ctx, "", w)
	}
}

func (r *resource) deleteRequest(ctx context.Context, key object.Key, options *metav1.DeleteOptions, cascade string) store.DeleteRequest {
	dry, rules := dryrun.IsDryRun(options.DryRun), r.v.Kind.Rules
	rules.MarkFirst = r.api.NoControllers && !dry
	return store.DeleteRequest{
		Key:     key,
		Options: *options,
		Rules:   rules,
		DryRun:  dry,
		Actor:   clientName(ctx),
		Cascade: cascade,

		RequestID: record.RequestID(ctx),
		Guarded:   true, MaxCascade: r.api.limits.Load().MaxCascade,
	}
}

// afterDelete warns of what the guard will hold, and words the error for the client.
func (r *resource) afterDelete(ctx context.Context, key object.Key, options *metav1.DeleteOptions, result store.DeleteResult, err error) error {
	if err == nil && result.Outcome == lifecycle.Mark {
		r.warnHeld(ctx, result.Object, options)
	}
	if known, ok := errors.AsType[*object.Error](err); ok && known.Code == object.Conflict {
		// Kubernetes names the kind here, and the resource in other conflicts.
		return apierrors.NewConflict(schema.GroupResource{Group: r.v.GVK.Group, Resource: r.v.GVK.Kind}, key.Name, errors.New(known.Message))
	}
	return r.statusError(err, key)
}

var heldKey = []byte(`"` + lifecycle.HeldAbove + `":`)

// warnHeld warns the client if the guard will hold the deletion, or would hold it
// without the dry run. It is a forecast; the collector decides.
func (r *resource) warnHeld(ctx context.Context, o object.Object, options *metav1.DeleteOptions) {
	if r.api.GuardWarning == nil || !bytes.Contains(o.Body, heldKey) {
		return
	}
	text, err := r.api.GuardWarning(ctx, o, options)
	if err != nil {
		r.api.Logger.Warn("preview of the cascade failed", "object", o.Key.String(), "error", err)
		return
	}
	if text != "" {
		warning.AddWarning(ctx, "", text)
	}
}

// clientName returns the name of the client, for the archive.
func clientName(ctx context.Context) string {
	if client, ok := genericrequest.UserFrom(ctx); ok {
		return client.GetName()
	}
	return ""
}

func (r *resource) deletedStatus(o object.Object) *metav1.Status {
	gr := r.v.Resource().GroupResource()
	return &metav1.Status{
		Status: metav1.StatusSuccess,
		// Kind holds the resource's name: clients rely on that.
		Details: &metav1.StatusDetails{Name: o.Name, Group: gr.Group, Kind: gr.Resource, UID: o.UID},
	}
}

// recordDeletion adds the deletion of one object to the event. The cascade of an object
// that was being deleted already is the one of its first delete.
func (r *resource) recordDeletion(ctx context.Context, result store.DeleteResult, options *metav1.DeleteOptions) {
	if r.api.audit.Log == nil {
		return
	}
	cascade := string(result.Object.UID)
	if result.Again {
		origin, err := r.api.Store.OriginOf(ctx, result.Object.UID)
		if err != nil {
			r.api.Logger.Warn("the audit event of a delete has no cascade", "object", result.Object.Key.String(), "error", err)
		}
		cascade = cmp.Or(origin.Cascade, cascade)
	}
	var d record.Deletions
	d.Add(result, options)
	r.api.audit.Deletions(ctx, cascade, d)
}

// delete serves the DELETE of one object. It returns false, and has done nothing,
// if the library must serve the request.
func (j *fastWrites) delete(ctx context.Context, w http.ResponseWriter, req *http.Request, info *genericrequest.RequestInfo, body []byte) bool {
	options, ok := readDeleteOptions(req, body)
	if !ok {
		return false
	}
	mark(ctx, stepDecoded)
	result, err := j.r.delete(ctx, j.r.key(ctx, info.Name), options, "")
	mark(ctx, stepStored)
	if err != nil {
		j.r.fail(w, req, err)
		return true
	}
	j.r.recordDeletion(ctx, result, options)
	gone := result.Outcome == lifecycle.Remove
	if gone && !j.r.v.Kind.ReturnsDeleted {
		status := j.r.deletedStatus(result.Object)
		status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		j.answerStatus(w, req, status)
		return true
	}
	code := http.StatusOK
	// As in Kubernetes, 202 (the object still exists) is sent only to clients that
	// set the deprecated option orphanDependents.
	if orphan := options.OrphanDependents; !gone && orphan != nil && !*orphan {
		code = http.StatusAccepted
	}
	j.answer(w, req, code, written{stored: result.Object})
	return true
}

// readDeleteOptions reads the options from the body or, without a body, from the
// query. It returns false for options that the library would refuse.
func readDeleteOptions(req *http.Request, body []byte) (*metav1.DeleteOptions, bool) {
	options := &metav1.DeleteOptions{}
	switch {
	case len(body) > 0:
		kind := metav1.SchemeGroupVersion.WithKind("DeleteOptions")
		decoder := deleteOptionsJSON
		if sendsType(req, runtime.ContentTypeProtobuf) {
			decoder = deleteOptionsProtobuf
		}
		obj, _, err := decoder.Decode(body, &kind, options)
		if err != nil || obj != options {
			return nil, false
		}
	case req.URL.RawQuery != "":
		if err := metainternalscheme.ParameterCodec.DecodeParameters(req.URL.Query(), metav1.SchemeGroupVersion, options); err != nil {
			return nil, false
		}
	}
	if options.IgnoreStoreReadErrorWithClusterBreakingPotential != nil || len(validation.ValidateDeleteOptions(options)) > 0 {
		return nil, false
	}
	return options, true
}

// Decoders of the DeleteOptions of every group.
var (
	deleteOptionsJSON     = deleteOptionsDecoder(runtime.ContentTypeJSON)
	deleteOptionsProtobuf = deleteOptionsDecoder(runtime.ContentTypeProtobuf)
)

func deleteOptionsDecoder(mediaType string) runtime.Decoder {
	codecs := apihelpers.GetMetaInternalVersionCodecs()
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType) // it has both
	return codecs.DecoderToVersion(info.Serializer, metav1.SchemeGroupVersion)
}
