// Package kindtest has a client for tests.
package kindtest

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
)

// Almighty returns a client that may do everything.
func Almighty() kind.Client {
	all := func(context.Context, *kind.Version, object.Key, runtime.Object, bool) error { return nil }
	return kind.Client{
		Name:      "exeunt",
		Authorize: func(string, schema.GroupResource, string, string) error { return nil },
		Mutate:    all, Admit: all,
		Contain: func(context.Context, schema.GroupVersionResource, runtime.Object) error { return nil },
	}
}
