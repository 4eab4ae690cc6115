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
// strategy (v.Strategy, or an endpoint's own), then validate (if it is not nil),
// then Kind.Admit and Kind.Attach, then Encode. It changes obj in place. The warnings are for the
// client, also if there is an error.
func (v *Version) Prepare(ctx context.Context, s lifecycle.Strategy, obj runtime.Object, c lifecycle.Creation, validate func(context.Context, runtime.Object) error) (n object.New, warnings []string, err error) {
	c.Restored = IsRestoring(ctx)
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
	if v.Kind.Attach != nil {
		attached, err := v.Kind.Attach(ctx, obj, nil)
		if err != nil {
			return n, warnings, err
		}
		n.With, warnings = attached.Objects, append(warnings, attached.Warnings...)
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
	n.Meta, n.InNamespace, n.Most = object.MetaOf(m), v.Kind.Namespaced, v.Kind.Most
	n.Key = object.Key{Kind: v.Kind.Storage, Namespace: m.GetNamespace(), Name: m.GetName()}
	if v.Kind.Definition != "" {
		n.Definition = object.Key{Kind: object.Definitions, Name: v.Kind.Definition}
	}
	return n, warnings, nil
}

// Attachment is what Kind.Attach returns.
type Attachment struct {
	Objects  []object.New
	Warnings []string
}

type restoringKey struct{}

// Restoring returns a context for objects that come back from the archive. What they
// had may be taken: Kind.Attach then gives them another, and warns.
func Restoring(ctx context.Context) context.Context {
	return context.WithValue(ctx, restoringKey{}, true)
}

// IsRestoring reports whether the context is one of Restoring.
func IsRestoring(ctx context.Context) bool { return ctx.Value(restoringKey{}) != nil }
