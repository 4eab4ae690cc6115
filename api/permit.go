package api

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
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
		a.Access.SetRequestor(client, obj)
	}
	w.Confirms, w.Hastens = lifecycle.Confirms(w.Meta, w.OldMeta), lifecycle.Hastens(w.Meta, w.OldMeta)
	w.Expires = lifecycle.Expires(resource.GroupResource(), obj, old)
	w.Weakens = old != nil && (lifecycle.LoosensTags(w.Meta, w.OldMeta) || isNamespace(resource) &&
		lifecycle.Weakens(a.limits.Load().MaxCascade, w.Meta.GetAnnotations(), w.OldMeta.GetAnnotations()))
	a.audit.Write(ctx, &w)
	if err := a.Access.CheckWrite(ctx, w); err != nil || !w.Confirms {
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
	namespace, err := a.Store.AnotherConfirms(ctx, object.Key{Kind: w.Resource.GroupResource().String(), Namespace: w.Meta.GetNamespace(), Name: w.Meta.GetName()})
	if err != nil || namespace == "" {
		return err
	}
	why := "its deletion must be confirmed when it waits, not before"
	if w.OldMeta != nil && w.OldMeta.GetDeletionTimestamp() != nil {
		origin, err := a.Store.OriginOf(ctx, w.OldMeta.GetUID())
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
	decision, reason, err := r.api.Access.Authorizer().Authorize(ctx, a)
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
			decision, reason, err := a.Access.Authorizer().Authorize(ctx, attributes)
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
		Write: func(ctx context.Context, w kind.Write) ([]byte, error) { return a.within(ctx, client, w) },
		Pretend: func(ctx context.Context, namespace runtime.Object) {
			if ns, ok := namespace.(*corev1.Namespace); ok {
				a.Admission.Pretend(ctx, ns)
			}
		},
		JudgeDelete: func(ctx context.Context, o object.Object, options metav1.DeleteOptions) error {
			return a.askDelete(ctx, client, o, options, a.Admission.Judge)
		},
		JudgeCollected: func(ctx context.Context, o object.Object, options metav1.DeleteOptions, emptying bool) error {
			return a.askCollected(ctx, o, options, emptying, a.Admission.Judge)
		},
		Judges: func(kind string) []string {
			if k, ok := a.Kinds.Snapshot().Stored(kind); ok {
				return a.Admission.Judges(schema.GroupResource{Group: k.Group, Resource: k.Plural}, admission.Delete)
			}
			return nil
		},
	}
}

// within is kind.Client.Write: a request to this API, as the client.
func (a *API) within(ctx context.Context, client user.Info, w kind.Write) ([]byte, error) {
	path := kind.ObjectsPath(w.Version.GVK.GroupVersion(), w.Key.Namespace, w.Version.Kind.Plural) + "/" + w.Key.Name
	if w.Subresource != "" {
		path += "/" + w.Subresource
	}
	query := url.Values{} // a delete has its options in the body
	if w.Method != http.MethodDelete {
		query.Set("fieldManager", w.Manager)
	}
	if w.DryRun && w.Method != http.MethodDelete {
		query.Set("dryRun", metav1.DryRunAll)
	}
	return access.Ask(access.WithClient(access.Own{Context: ctx}, client), a, w.Method, path+"?"+query.Encode(), w.Body, func(req *http.Request) {
		req.Header.Set("User-Agent", w.Manager)
		if w.RequestID != "" {
			req.Header.Set("Audit-Id", w.RequestID)
		}
	})
}

// ownerResource finds the resource of an owner's kind.
func (a *API) ownerResource(gvk schema.GroupVersionKind) (gvr schema.GroupVersionResource, namespaced, served bool) {
	k, ok := a.Kinds.Snapshot().OfGroupKind(gvk.GroupKind())
	if !ok {
		return gvr, false, false
	}
	return gvk.GroupVersion().WithResource(k.Plural), k.Namespaced, true
}

func isNamespace(r schema.GroupVersionResource) bool {
	return r.Group == "" && r.Resource == object.Namespaces
}

// SelectsDelete implements gc.Admission.
func (a *API) SelectsDelete(storage string) bool {
	k, ok := a.Kinds.Snapshot().Stored(storage)
	return ok && a.Admission.Selects(schema.GroupResource{Group: k.Group, Resource: k.Plural}, "", admission.Delete)
}

// AdmitDelete implements gc.Admission.
func (a *API) AdmitDelete(ctx context.Context, o object.Object, options metav1.DeleteOptions, emptying bool) error {
	return a.askCollected(ctx, o, options, emptying, func(ctx context.Context, r admission.Attributes, objects admission.ObjectInterfaces) error {
		if plugin, ok := a.Admission.(admission.MutationInterface); ok {
			if err := plugin.Admit(ctx, r, objects); err != nil {
				return err
			}
		}
		if plugin, ok := a.Admission.(admission.ValidationInterface); ok {
			return plugin.Validate(ctx, r, objects)
		}
		return nil
	})
}

// asking asks webhooks or policies about a request.
type asking func(context.Context, admission.Attributes, admission.ObjectInterfaces) error

// askCollected is askDelete for a delete of the collector. Webhooks see the clients that they know from
// Kubernetes, and often except: its garbage collector and namespace controller.
func (a *API) askCollected(ctx context.Context, o object.Object, options metav1.DeleteOptions, emptying bool, ask asking) error {
	options.Preconditions = &metav1.Preconditions{UID: &o.UID}
	account := "generic-garbage-collector"
	if emptying {
		account = "namespace-controller"
	}
	return a.askDelete(ctx, serviceaccount.UserInfo(metav1.NamespaceSystem, account, ""), o, options, ask)
}

// askDelete asks about the delete of a stored object, if a webhook or a policy may judge it.
func (a *API) askDelete(ctx context.Context, client user.Info, o object.Object, options metav1.DeleteOptions, ask asking) error {
	k, ok := a.Kinds.Snapshot().Stored(o.Kind)
	if !ok || len(k.Versions) == 0 {
		return nil // no rule can name it
	}
	v := k.Versions[0]
	if !a.selects(v, o.Namespace, admission.Delete) {
		return nil
	}
	obj, err := v.Decode(o.Body, o.ResourceVersion())
	if err != nil {
		return err
	}
	return ask(ctx, admission.NewAttributesRecord(nil, obj, v.GVK, o.Namespace, o.Name, v.Resource(), "", admission.Delete, &options, false, client), a.objects(v))
}

// createAttributes describes the creation of an object that a request causes and does
// not contain, such as one that it restores.
func createAttributes(ctx context.Context, v *kind.Version, obj runtime.Object, key object.Key, dryRun bool) admission.Attributes {
	var client user.Info
	client, _ = genericrequest.UserFrom(ctx)
	options := &metav1.CreateOptions{}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	return admission.NewAttributesRecord(obj, nil, v.GVK, key.Namespace, key.Name, v.Resource(), "", admission.Create, options, dryRun, client)
}

func (a *API) mutate(ctx context.Context, v *kind.Version, r admission.Attributes) error {
	if plugin, ok := a.Admission.(admission.MutationInterface); ok && a.selects(v, r.GetNamespace(), r.GetOperation()) {
		return plugin.Admit(ctx, r, a.objects(v))
	}
	return nil
}

func (a *API) validate(ctx context.Context, v *kind.Version, r admission.Attributes) error {
	if plugin, ok := a.Admission.(admission.ValidationInterface); ok && a.selects(v, r.GetNamespace(), r.GetOperation()) {
		return plugin.Validate(ctx, r, a.objects(v))
	}
	return nil
}

func (a *API) selects(v *kind.Version, namespace string, operation admission.Operation) bool {
	resource := v.Resource().GroupResource()
	return a.Admission.Selects(resource, "", operation) || a.Admission.SelectsIn(namespace, resource, operation)
}

// objects says how plugins handle the objects of a version.
func (a *API) objects(v *kind.Version) admission.ObjectInterfaces {
	scope := a.baseScope(v, v.Wire)
	scope.Kind, scope.HubGroupVersion = v.GVK, v.GVK.GroupVersion()
	return scope
}
