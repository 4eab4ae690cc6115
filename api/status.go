package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// statusError turns an object.Error into the Status that Kubernetes answers. Other
// errors are internal: their text goes to the log, and the client gets a general
// message.
func (r *resource) statusError(err error, key object.Key) error {
	if err == nil {
		return nil
	}
	var known *object.Error
	if !errors.As(err, &known) {
		return r.internalError(err)
	}
	if (r.v.Kind.Ephemeral || r.v.Kind.Answer != nil) && key.Name == "" {
		return withoutName(r.refusal(known, key))
	}
	return r.refusal(known, key)
}

// invalidKind is what an Invalid status names: the kind or, if only the version of an update is
// missing, the resource, as in Kubernetes.
func (r *resource) invalidKind(known *object.Error) schema.GroupKind {
	if len(known.Fields) == 1 && known.Fields[0].Field == "metadata.resourceVersion" && known.Fields[0].BadValue == 0 {
		return schema.GroupKind{Group: r.v.GVK.Group, Kind: r.v.Kind.Plural}
	}
	return r.v.GVK.GroupKind()
}

func (r *resource) refusal(known *object.Error, key object.Key) error {
	gr := r.v.Resource().GroupResource()
	switch known.Code {
	case object.NotFound:
		return apierrors.NewNotFound(gr, key.Name)
	case object.AlreadyExists:
		return apierrors.NewAlreadyExists(gr, key.Name)
	case object.BeingDeleted:
		status := apierrors.NewAlreadyExists(gr, key.Name)
		status.ErrStatus.Message = "object is being deleted: " + status.ErrStatus.Message
		return status
	case object.NoNamespace:
		return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, key.Namespace)
	case object.Terminating:
		return namespaceTerminating(gr, key)
	case object.Conflict:
		return apierrors.NewConflict(gr, key.Name, errors.New(known.Message))
	case object.Invalid:
		return apierrors.NewInvalid(r.invalidKind(known), key.Name, known.Fields)
	case object.Forbidden:
		return apierrors.NewForbidden(gr, key.Name, errors.New(known.Message))
	case object.Expired:
		return apierrors.NewResourceExpired(known.Message)
	case object.TooLarge:
		return apierrors.NewRequestEntityTooLargeError(known.Message)
	case object.TooLargeVersion:
		return versionTooLarge(known.Message)
	case object.Versioned:
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: known.Message}}
	default:
		return apierrors.NewBadRequest(known.Message)
	}
}

// withoutName removes the empty name from a message. A question (DeletionPreview,
// Restore) usually has no name, but the texts of Kubernetes quote it:
// DeletionPreview.lifecycle.exeunt.dev "" is invalid. kubectl builds the same text
// itself if the details have a kind, so the kind is removed too.
func withoutName(err error) error {
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		status.ErrStatus.Message = strings.Replace(status.ErrStatus.Message, ` ""`, "", 1)
		if status.ErrStatus.Reason == metav1.StatusReasonInvalid && status.ErrStatus.Details != nil {
			status.ErrStatus.Details.Group, status.ErrStatus.Details.Kind = "", ""
		}
	}
	return err
}

func (r *resource) internalError(err error) error {
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &status):
		if unwrapped, ok := status.(error); ok {
			return unwrapped // the library answers a wrapped error with 500
		}
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		// Without Retry-After: clients would retry by themselves, but the write may
		// have been committed, or may still be.
		return apierrors.NewTimeoutError("the request ended before it was done: "+err.Error(), 0)
	case store.Full(err):
		r.api.Logger.Error("the database is full", "resource", r.v.Resource().String(), "error", err)
		return full("the server's database is full; nothing was changed. Its operator has to make space")
	case store.Corrupt(err):
		r.api.Logger.Error(store.CorruptAdvice, "resource", r.v.Resource().String(), "error", err)
		return apierrors.NewInternalError(errors.New("the server's database is damaged; its operator has to restore it from a backup"))
	case store.Unavailable(err):
		r.api.Logger.Warn("request could not be served", "resource", r.v.Resource().String(), "error", err)
		return unavailable("the server is stopping, or its database does not answer; please try again")
	}
	r.api.Logger.Error("request failed", "resource", r.v.Resource().String(), "error", err)
	return apierrors.NewInternalError(errors.New("the server could not complete the request; its log says why"))
}

func namespaceTerminating(gr schema.GroupResource, key object.Key) error {
	status := apierrors.NewForbidden(gr, key.Name, fmt.Errorf("unable to create new content in namespace %s because it is being terminated", key.Namespace))
	status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{
		Type:    "NamespaceTerminating",
		Message: fmt.Sprintf("namespace %s is being terminated", key.Namespace),
		Field:   "metadata.namespace",
	})
	return status
}

// retryAfter is how long a refused client should wait, in seconds.
const retryAfter = 1

// unavailable is a 503 for a request that changed nothing. Clients may retry it,
// and client-go does so because of Retry-After.
func unavailable(message string) error {
	status := apierrors.NewServiceUnavailable(message)
	status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfter}
	return status
}

// errFull refuses what needs more space, while deletions still have some.
var errFull = full("the server's disk is full, so it accepts only what gives space back: deletions, finalizers that are removed, and changes that make an object smaller. Nothing was changed")

func (a *API) isFull() bool { return a.Full != nil && a.Full() }

// full is a 507. It has no Retry-After: space is not freed within seconds.
func full(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInsufficientStorage, Reason: "InsufficientStorage", Message: message,
	}}
}

// versionTooLarge is the error that makes client-go wait and retry.
func versionTooLarge(message string) error {
	status := apierrors.NewTimeoutError(message, retryAfter)
	status.ErrStatus.Code = http.StatusGatewayTimeout
	status.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return status
}

// patchOnly is a subresource such as /status: it reads and changes an existing
// object and never creates one, even if the kind allows create on update.
type patchOnly struct{ *resource }

func (p *patchOnly) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	existing := *p.resource
	existing.strategy = neverCreate{p.strategy}
	return existing.Update(ctx, name, info, create, update, false, options)
}

type neverCreate struct{ lifecycle.Strategy }

func (neverCreate) AllowCreateOnUpdate(context.Context) bool { return false }

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
// removes a namespace whose content is still there; here it does so only without controllers,
// when nothing else removes the content.
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
	if f.api.NoControllers || !released || old.DeletionTimestamp == nil { // a delete sets the finalizer again
		return nil
	}
	left, err := f.api.Store.Reader().Kinds(ctx, ns.Name)
	if err != nil || len(left) == 0 {
		return err
	}
	return object.InvalidFields(field.ErrorList{field.Forbidden(field.NewPath("spec", "finalizers"),
		"the namespace has content, which would be left behind ("+strings.Join(left, ", ")+"); see what keeps it: exeunt why namespace/"+ns.Name)})
}
