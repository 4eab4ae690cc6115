package api

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

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
// is an internal error.
func (r *resource) decode(o object.Object) (runtime.Object, error) {
	obj, err := r.v.Decode(o.Body, o.ResourceVersion())
	if err != nil {
		return nil, r.internalError(err)
	}
	return obj, nil
}
