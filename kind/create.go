package kind

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// Prepare makes a new object ready for the store: lifecycle.BeforeCreate with a
// strategy (v.Strategy, or an endpoint's own), then validate (nil: no more checks),
// then Kind.Admit, then Encode. It changes obj in place. The warnings are for the
// client, also if there is an error.
func (v *Version) Prepare(ctx context.Context, s lifecycle.Strategy, obj runtime.Object, c lifecycle.Creation, validate func(context.Context, runtime.Object) error) (n object.New, warnings []string, err error) {
	warnings, err = lifecycle.BeforeCreate(ctx, s, obj, c)
	if err != nil {
		return n, nil, err
	}
	for _, check := range []func(context.Context, runtime.Object) error{validate, v.Kind.Admit} {
		if check == nil {
			continue
		}
		if err := check(ctx, obj); err != nil {
			return n, warnings, err
		}
	}
	n.Body, err = v.Encode(obj)
	if err == nil {
		err = object.CheckDepth(n.Body)
	}
	if err != nil {
		return n, warnings, err
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return n, warnings, fmt.Errorf("prepare %T: %w", obj, err)
	}
	n.Meta, n.InNamespace = object.MetaOf(m), v.Kind.Namespaced
	n.Key = object.Key{Kind: v.Kind.Storage, Namespace: m.GetNamespace(), Name: m.GetName()}
	if v.Kind.Definition != "" {
		n.Definition = object.Key{Kind: object.Definitions, Name: v.Kind.Definition}
	}
	return n, warnings, nil
}
