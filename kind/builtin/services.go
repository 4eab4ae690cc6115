package builtin

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/exeunt/exeunt/kind"
)

// Services returns the kind Service with a source of addresses, for a server that gives
// them. It replaces the one of Kinds in a registry.
func Services(attach func(ctx context.Context, obj, old runtime.Object) (kind.Attachment, error)) *kind.Kind {
	k := serviceDef().kind()
	k.Attach = attach
	return k
}
