package api

import (
	"context"

	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/exeunt/exeunt/kind"
)

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
