package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
		r.api.log.Error("the database is full", "resource", r.v.Resource().String(), "error", err)
		return full("the server's database is full; nothing was changed. Its operator has to make space")
	case store.Corrupt(err):
		r.api.log.Error(store.CorruptAdvice, "resource", r.v.Resource().String(), "error", err)
		return apierrors.NewInternalError(errors.New("the server's database is damaged; its operator has to restore it from a backup"))
	case store.Unavailable(err):
		r.api.log.Warn("request could not be served", "resource", r.v.Resource().String(), "error", err)
		return unavailable("the server is stopping, or its database does not answer; please try again")
	}
	r.api.log.Error("request failed", "resource", r.v.Resource().String(), "error", err)
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
