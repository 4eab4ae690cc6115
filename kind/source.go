package kind

import (
	"context"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// Source is where the objects of a kind are that are not the store's: they
// come about by other means than a create. It returns objects of the kind's
// only version, and *object.Error to refuse. It is safe for concurrent use.
type Source interface {
	Get(ctx context.Context, namespace, name string) (runtime.Object, error)
	// List returns a list of the kind. It may return fewer than there are,
	// with a continue token.
	List(ctx context.Context, q SourceQuery) (runtime.Object, error)
	// Delete returns the object that it deleted.
	Delete(ctx context.Context, namespace, name string, dryRun bool) (runtime.Object, error)
}

// SourceQuery is what a list asks for. The selectors may be nil.
type SourceQuery struct {
	Namespace string // empty: all
	Labels    labels.Selector
	Fields    fields.Selector
	Limit     int64 // 0: the client did not say
	Continue  string
}
