package controllers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
)

// Apps are the kind that examples/shop defines: lists of objects that belong together.
var Apps = schema.GroupVersionResource{Group: "example.dev", Version: "v1", Resource: "apps"}

// again is the interval at which every App is reconciled, changed or not: it retries what
// failed.
const again = time.Second

type apps struct {
	client dynamic.Interface
	mapper meta.RESTMapper
}

// RunApps creates the parts of every App, with the App as their owner, until ctx ends. It
// creates missing parts and does not change existing ones.
func RunApps(ctx context.Context, config *rest.Config) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	a := &apps{client: client, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(kinds))}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, again)
	informer := factory.ForResource(Apps).Informer()
	look := func(obj any) {
		app, ok := obj.(*unstructured.Unstructured)
		if !ok || app.GetDeletionTimestamp() != nil {
			return // an App that is being deleted gets no parts
		}
		if err := a.complete(ctx, app); err != nil && ctx.Err() == nil {
			slog.Warn("the app is not complete", "name", app.GetName(), "error", err)
		}
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, obj any) { look(obj) }})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	return nil
}

// complete creates the missing parts.
func (a *apps) complete(ctx context.Context, app *unstructured.Unstructured) error {
	parts, _, err := unstructured.NestedSlice(app.Object, "spec", "parts")
	if err != nil {
		return err
	}
	var errs []error
	for i, p := range parts {
		fields, ok := p.(map[string]any)
		if !ok {
			errs = append(errs, fmt.Errorf("part %d is not an object", i))
			continue
		}
		errs = append(errs, a.create(ctx, app, &unstructured.Unstructured{Object: fields}))
	}
	return errors.Join(errs...)
}

func (a *apps) create(ctx context.Context, app, part *unstructured.Unstructured) error {
	kind := part.GroupVersionKind()
	mapping, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	parts := a.client.Resource(mapping.Resource).Namespace(app.GetNamespace())
	if _, err := parts.Get(ctx, part.GetName(), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return err
	}
	now, err := a.client.Resource(Apps).Namespace(app.GetNamespace()).Get(ctx, app.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || !stays(app, now) {
		return err
	}
	part.SetNamespace(app.GetNamespace())
	part.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(app, app.GroupVersionKind())})
	_, err = parts.Create(ctx, part, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
