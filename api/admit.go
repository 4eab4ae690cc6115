package api

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
)

// SelectsDelete implements gc.Admission.
func (a *API) SelectsDelete(storage string) bool {
	k, ok := a.kinds.Snapshot().Stored(storage)
	return ok && a.admit.Selects(schema.GroupResource{Group: k.Group, Resource: k.Plural}, "", admission.Delete)
}

// AdmitDelete implements gc.Admission.
func (a *API) AdmitDelete(ctx context.Context, o object.Object, options metav1.DeleteOptions, emptying bool) error {
	return a.askCollected(ctx, o, options, emptying, func(ctx context.Context, r admission.Attributes, objects admission.ObjectInterfaces) error {
		if plugin, ok := a.admit.(admission.MutationInterface); ok {
			if err := plugin.Admit(ctx, r, objects); err != nil {
				return err
			}
		}
		if plugin, ok := a.admit.(admission.ValidationInterface); ok {
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
	k, ok := a.kinds.Snapshot().Stored(o.Kind)
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
	if plugin, ok := a.admit.(admission.MutationInterface); ok && a.selects(v, r.GetNamespace(), r.GetOperation()) {
		return plugin.Admit(ctx, r, a.objects(v))
	}
	return nil
}

func (a *API) validate(ctx context.Context, v *kind.Version, r admission.Attributes) error {
	if plugin, ok := a.admit.(admission.ValidationInterface); ok && a.selects(v, r.GetNamespace(), r.GetOperation()) {
		return plugin.Validate(ctx, r, a.objects(v))
	}
	return nil
}

func (a *API) selects(v *kind.Version, namespace string, operation admission.Operation) bool {
	resource := v.Resource().GroupResource()
	return a.admit.Selects(resource, "", operation) || a.admit.SelectsIn(namespace, resource, operation)
}

// objects says how plugins handle the objects of a version.
func (a *API) objects(v *kind.Version) admission.ObjectInterfaces {
	scope := a.baseScope(v, v.Wire)
	scope.Kind, scope.HubGroupVersion = v.GVK, v.GVK.GroupVersion()
	return scope
}
