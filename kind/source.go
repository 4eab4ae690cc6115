package kind

import (
	"context"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// Source provides the objects of a kind that are not in the store and cannot be
// created by clients. It returns objects of the kind's only version, and an
// *object.Error for the client. It is safe for concurrent use.
type Source interface {
	Get(ctx context.Context, c Client, namespace, name string) (runtime.Object, error)
	// List returns a list of the kind. It may return a part with a continue token.
	List(ctx context.Context, c Client, q SourceQuery) (runtime.Object, error)
	// Delete returns the object that it deleted.
	Delete(ctx context.Context, c Client, namespace, name string, dryRun bool) (runtime.Object, error)
}

// SourceQuery holds the options of a list. The selectors may be nil.
type SourceQuery struct {
	Namespace string // empty: all
	Labels    labels.Selector
	Fields    fields.Selector
	Limit     int64 // 0: not set by the client
	Continue  string
}
