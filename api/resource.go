package api

import (
	"context"

	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/exeunt/exeunt/api/selector"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// resource is one endpoint of one version of a kind: the object itself or its
// /status. The library's handlers call it. It combines the kind's strategy, the
// rules of the lifecycle and the store. Each verb has its own file.
type resource struct {
	api      *API
	v        *kind.Version
	strategy lifecycle.Strategy
	prefix   []byte // object.WirePrefix of the version
	item     []byte // the same for the items of a list
}

var (
	_ rest.StandardStorage = (*resource)(nil)
	_ rest.Patcher         = (*resource)(nil)
)

// New makes an empty object for the library to decode into.
func (r *resource) New() runtime.Object { return r.v.New() }

// NewList makes an empty list.
func (r *resource) NewList() runtime.Object { return r.v.NewList() }

// Destroy has nothing to release.
func (r *resource) Destroy() {}

// ConvertToTable builds the columns that kubectl shows.
func (r *resource) ConvertToTable(ctx context.Context, obj runtime.Object, options runtime.Object) (*metav1.Table, error) {
	return r.v.Table.ConvertToTable(ctx, obj, options)
}

func (r *resource) key(ctx context.Context, name string) object.Key {
	key := object.Key{Kind: r.v.Kind.Storage, Name: name}
	if r.v.Kind.Namespaced {
		key.Namespace = genericrequest.NamespaceValue(ctx)
	}
	return key
}

// decode decodes a stored object. Every stored object can be decoded, so an error
// is an internal error, unless a conversion webhook failed: then it says so to the client.
func (r *resource) decode(o object.Object) (runtime.Object, error) {
	obj, err := r.v.Decode(o.Body, o.ResourceVersion())
	if err != nil {
		return nil, r.internalError(err)
	}
	return obj, nil
}

// decodeAll decodes a page of stored objects, with few calls of a conversion webhook.
func (r *resource) decodeAll(ctx context.Context, stored []object.Object) ([]runtime.Object, error) {
	if r.v.DecodeAll != nil {
		out, err := r.v.DecodeAll(ctx, stored)
		if err != nil {
			return nil, r.internalError(err)
		}
		return out, nil
	}
	var out []runtime.Object
	for _, o := range stored {
		obj, err := r.decode(o)
		if err != nil {
			return nil, err
		}
		out = append(out, obj)
	}
	return out, nil
}

// matcher applies the selectors of a request.
func (r *resource) matcher(options *metainternal.ListOptions) (m selector.Matcher, name string) {
	return selector.New(r.v, options, func(body []byte) (runtime.Object, error) {
		return r.decode(object.Object{Body: body})
	})
}

// sourced serves the kinds whose objects come from a kind.Source, not the store.
type sourced struct{ *resource }

// Get reads one object from the source.
func (s *sourced) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	obj, err := s.v.Kind.Source.Get(ctx, s.api.client(ctx), genericrequest.NamespaceValue(ctx), name)
	return obj, s.statusError(err, s.key(ctx, name))
}

// List reads a page from the source.
func (s *sourced) List(ctx context.Context, o *metainternal.ListOptions) (runtime.Object, error) {
	q := kind.SourceQuery{Namespace: genericrequest.NamespaceValue(ctx)}
	if o != nil {
		q.Labels, q.Fields, q.Limit, q.Continue = o.LabelSelector, o.FieldSelector, o.Limit, o.Continue
	}
	list, err := s.v.Kind.Source.List(ctx, s.api.client(ctx), q)
	return list, s.statusError(err, s.key(ctx, ""))
}

// Delete removes an object from the source immediately.
func (s *sourced) Delete(ctx context.Context, name string, _ rest.ValidateObjectFunc, o *metav1.DeleteOptions) (runtime.Object, bool, error) {
	dry := o != nil && dryrun.IsDryRun(o.DryRun)
	obj, err := s.v.Kind.Source.Delete(ctx, s.api.client(ctx), genericrequest.NamespaceValue(ctx), name, dry)
	return obj, true, s.statusError(err, s.key(ctx, name))
}
