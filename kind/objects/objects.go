// Package objects writes API objects on behalf of the server itself: default roles,
// service accounts, certificates. They pass the same lifecycle as a client's objects,
// and no authorization. It does not know what the objects mean.
package objects

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// Writer writes objects of the kinds that the registry has.
type Writer struct {
	Store *store.Store
	Kinds *kind.Registry
	Actor string // for the archive: who wrote
}

func (w Writer) version(gvr schema.GroupVersionResource) (*kind.Version, error) {
	v, ok := w.Kinds.Snapshot().Lookup(gvr)
	if !ok {
		return nil, fmt.Errorf("no kind %s", gvr)
	}
	return v, nil
}

func key(v *kind.Version, m metav1.Object) object.Key {
	return object.Key{Kind: v.Kind.Storage, Namespace: m.GetNamespace(), Name: m.GetName()}
}

// Get reads an object. Error: NotFound.
func (w Writer) Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (runtime.Object, error) {
	v, err := w.version(gvr)
	if err != nil {
		return nil, err
	}
	o, err := w.Store.Get(ctx, object.Key{Kind: v.Kind.Storage, Namespace: namespace, Name: name})
	if err != nil {
		return nil, err
	}
	return v.Decode(o.Body, o.ResourceVersion())
}

// Create creates an object and sets its metadata. Errors: those of store.Create.
func (w Writer) Create(ctx context.Context, gvr schema.GroupVersionResource, obj runtime.Object) error {
	v, err := w.version(gvr)
	if err != nil {
		return err
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	v.Wire.Defaulter.Default(obj)
	ctx = genericrequest.WithNamespace(ctx, m.GetNamespace())
	made, _, err := v.Prepare(ctx, v.Strategy, obj, lifecycle.Creation{Namespace: m.GetNamespace(), Now: time.Now(), UID: object.NewUID()}, nil)
	if err != nil {
		return err
	}
	_, err = w.Store.Create(ctx, store.RequestFor(made))
	return err
}

// Update replaces old, which was read with Get, by obj. Error: Conflict if another write
// came first.
func (w Writer) Update(ctx context.Context, gvr schema.GroupVersionResource, obj, old runtime.Object) error {
	v, err := w.version(gvr)
	if err != nil {
		return err
	}
	return w.update(ctx, v, v.Strategy, obj, old)
}

// UpdateStatus is Update by the rules of the status subresource.
func (w Writer) UpdateStatus(ctx context.Context, gvr schema.GroupVersionResource, obj, old runtime.Object) error {
	v, err := w.version(gvr)
	if err != nil {
		return err
	}
	return w.update(ctx, v, v.Status, obj, old)
}

// SetStatus gives an object of a custom kind the status that change makes of the one that it has, which may be empty. It
// writes nothing if they are the same. Errors: NotFound, Conflict, those of change.
func (w Writer) SetStatus(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, change func(status map[string]any) error) error {
	old, err := w.Get(ctx, gvr, namespace, name)
	if err != nil {
		return err
	}
	u, ok := old.DeepCopyObject().(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("the status of %T is not for SetStatus", old)
	}
	before, _, err := unstructured.NestedMap(u.Object, "status")
	if err != nil {
		return err
	}
	status := maps.Clone(before)
	if status == nil {
		status = map[string]any{}
	}
	if err := change(status); err != nil || reflect.DeepEqual(before, status) {
		return err
	}
	u.Object["status"] = status
	return w.UpdateStatus(ctx, gvr, u, old)
}

// Figure returns a number of a status.
func Figure(status map[string]any, name string) int64 {
	n, _ := status[name].(int64)
	return n
}

func (w Writer) update(ctx context.Context, v *kind.Version, s lifecycle.Strategy, obj, old runtime.Object) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	was, err := meta.Accessor(old)
	if err != nil {
		return err
	}
	revision, err := object.ParseResourceVersion(was.GetResourceVersion())
	if err != nil {
		return err
	}
	ctx = genericrequest.WithNamespace(ctx, m.GetNamespace())
	updated, err := lifecycle.BeforeUpdate(ctx, s, obj, old, lifecycle.Change{Namespace: m.GetNamespace()})
	if err != nil {
		return err
	}
	body, err := v.Encode(obj)
	if err != nil {
		return err
	}
	_, err = w.Store.Update(ctx, store.UpdateRequest{
		Key: key(v, m), IfRevision: revision, Meta: object.MetaOf(m), Body: body, Remove: updated.Remove, Actor: w.Actor,
	})
	return err
}
