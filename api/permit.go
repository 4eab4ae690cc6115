package api

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// permitWrite refuses a write whose content needs rights that the client lacks. Old is
// nil on create. It sees the object as it will be stored, so nothing changes after it. Of
// a new CertificateSigningRequest it sets the requestor.
func (r *resource) permitWrite(ctx context.Context, obj, old runtime.Object) error {
	return r.api.permitWrite(ctx, r.v.Resource(), obj, old)
}

func (a *API) permitWrite(ctx context.Context, resource schema.GroupVersionResource, obj, old runtime.Object) error {
	client, ok := genericrequest.UserFrom(ctx)
	if !ok {
		return apierrors.NewUnauthorized("the request is not authenticated")
	}
	w := access.Write{
		Client: client, Resource: resource, Object: obj, Old: old,
		Owner: a.ownerResource,
	}
	var err error
	if w.Meta, err = meta.Accessor(obj); err != nil {
		return err
	}
	if old != nil {
		if w.OldMeta, err = meta.Accessor(old); err != nil {
			return err
		}
	}
	if old == nil {
		a.access.SetRequestor(client, obj)
	}
	w.Confirms = lifecycle.Confirms(w.Meta, w.OldMeta)
	w.Weakens = old != nil && isNamespace(resource) &&
		lifecycle.Weakens(a.limits.Load().MaxCascade, w.Meta.GetAnnotations(), w.OldMeta.GetAnnotations())
	a.audit.Write(ctx, &w)
	if err := a.access.CheckWrite(ctx, w); err != nil || !w.Confirms {
		return err
	}
	return a.checkConfirmation(ctx, w)
}

// checkConfirmation refuses the confirmation of a client that asked for the deletion itself,
// if a Namespace demands another user. Then a confirmation cannot be set before the delete
// either.
//
// The client that asked does not change while the object is DELETING, and the update is
// for this revision: if the deletion is called off and begins again, the update fails.
func (a *API) checkConfirmation(ctx context.Context, w access.Write) error {
	number := w.Meta.GetAnnotations()[lifecycle.ConfirmCascade]
	if number == "" || w.OldMeta != nil && number == w.OldMeta.GetAnnotations()[lifecycle.ConfirmCascade] {
		return nil // it removes the guard's finalizer
	}
	namespace, err := a.store.AnotherConfirms(ctx, object.Key{Kind: w.Resource.GroupResource().String(), Namespace: w.Meta.GetNamespace(), Name: w.Meta.GetName()})
	if err != nil || namespace == "" {
		return err
	}
	why := "its deletion must be confirmed when it waits, not before"
	if w.OldMeta != nil && w.OldMeta.GetDeletionTimestamp() != nil {
		origin, err := a.store.OriginOf(ctx, w.OldMeta.GetUID())
		if err != nil || origin.Requester != w.Client.GetName() {
			return err
		}
		why = "you asked for its deletion, so another user must confirm it"
	}
	return apierrors.NewForbidden(w.Resource.GroupResource(), w.Meta.GetName(),
		fmt.Errorf("%s: namespace %s has the annotation %s", why, namespace, lifecycle.ConfirmBy))
}

// permitCreate refuses an update that would create the object, if the client may only
// update.
func (r *resource) permitCreate(ctx context.Context, name string) error {
	client, _ := genericrequest.UserFrom(ctx)
	gvr := r.v.Resource()
	a := authorizer.AttributesRecord{
		User: client, Verb: "create", ResourceRequest: true, APIGroup: gvr.Group, APIVersion: gvr.Version, Resource: gvr.Resource,
		Namespace: r.key(ctx, name).Namespace, Name: name,
	}
	decision, reason, err := r.api.access.Authorizer().Authorize(ctx, a)
	if err != nil || decision == authorizer.DecisionAllow {
		return err
	}
	return responsewriters.ForbiddenStatusError(a, reason)
}

// client returns the client of a request, for kinds that read and write objects of other
// kinds. Without an authenticated user it may do nothing.
func (a *API) client(ctx context.Context) kind.Client {
	client, _ := genericrequest.UserFrom(ctx)
	return a.ClientOf(ctx, client)
}

// ClientOf returns the client that a user is, now: the rights are those that it has when it is
// asked. Without a user it may do nothing.
func (a *API) ClientOf(ctx context.Context, client user.Info) kind.Client {
	if client == nil {
		return kind.Client{}
	}
	ctx = genericrequest.WithUser(ctx, client)
	return kind.Client{
		Name: client.GetName(), User: client,
		Authorize: func(verb string, r schema.GroupResource, namespace, name string) error {
			resource, subresource, _ := strings.Cut(r.Resource, "/")
			attributes := authorizer.AttributesRecord{
				User: client, Verb: verb, ResourceRequest: true, APIGroup: r.Group, APIVersion: "*", Resource: resource, Subresource: subresource,
				Namespace: namespace, Name: name,
			}
			decision, reason, err := a.access.Authorizer().Authorize(ctx, attributes)
			if decision == authorizer.DecisionAllow {
				return nil
			}
			if err != nil {
				return err
			}
			return responsewriters.ForbiddenStatusError(attributes, reason)
		},
		Mutate: func(ctx context.Context, v *kind.Version, key object.Key, obj runtime.Object, dryRun bool) error {
			ctx = genericrequest.WithUser(ctx, client)
			return a.mutate(ctx, v, createAttributes(ctx, v, obj, key, dryRun))
		},
		Admit: func(ctx context.Context, v *kind.Version, key object.Key, obj runtime.Object, dryRun bool) error {
			ctx = genericrequest.WithUser(ctx, client)
			if err := a.permitWrite(ctx, v.Resource(), obj, nil); err != nil {
				return err
			}
			return a.validate(ctx, v, createAttributes(ctx, v, obj, key, dryRun))
		},
		Contain: func(ctx context.Context, r schema.GroupVersionResource, obj runtime.Object) error {
			return a.permitWrite(genericrequest.WithUser(ctx, client), r, obj, nil)
		},
		Pretend: func(ctx context.Context, namespace runtime.Object) {
			if ns, ok := namespace.(*corev1.Namespace); ok {
				a.admit.Pretend(ctx, ns)
			}
		},
		JudgeDelete: func(ctx context.Context, o object.Object, options metav1.DeleteOptions) error {
			return a.askDelete(ctx, client, o, options, a.admit.Judge)
		},
		JudgeCollected: func(ctx context.Context, o object.Object, options metav1.DeleteOptions, emptying bool) error {
			return a.askCollected(ctx, o, options, emptying, a.admit.Judge)
		},
		Judges: func(kind string) []string {
			if k, ok := a.kinds.Snapshot().Stored(kind); ok {
				return a.admit.Judges(schema.GroupResource{Group: k.Group, Resource: k.Plural}, admission.Delete)
			}
			return nil
		},
	}
}

// ownerResource finds the resource of an owner's kind.
func (a *API) ownerResource(gvk schema.GroupVersionKind) (gvr schema.GroupVersionResource, namespaced, served bool) {
	k, ok := a.kinds.Snapshot().OfGroupKind(gvk.GroupKind())
	if !ok {
		return gvr, false, false
	}
	return gvk.GroupVersion().WithResource(k.Plural), k.Namespaced, true
}

func isNamespace(r schema.GroupVersionResource) bool {
	return r.Group == "" && r.Resource == object.Namespaces
}
