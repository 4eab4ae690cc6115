// Package lifecycle holds the rules for the life of an object: before create,
// before update, before delete, finalizers, grace periods and cascade policy.
//
// It is pure: its functions take values and return decisions, time and random
// values are arguments, and nothing is read or written. Every write of an object
// uses it: library handlers, the fast path, the collector.
package lifecycle

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Strategy is the differences between kinds. Implementations are pure; the
// context carries no more than request-scoped values and may be Background.
type Strategy interface {
	// NamespaceScoped reports whether objects of the kind live in a namespace.
	NamespaceScoped() bool
	// Create sets what users may not set in a new object, validates it, and converts it to its
	// stored form. It returns advice that does not refuse the object. What it leaves in an
	// object that it refuses has no meaning.
	Create(ctx context.Context, obj runtime.Object) (warnings []string, errs field.ErrorList)
	// Update does the same for the successor of old: it restores the fields that users may not
	// change, and increments the generation. In old it may set defaults.
	Update(ctx context.Context, obj, old runtime.Object) (warnings []string, errs field.ErrorList)
	// AllowCreateOnUpdate reports whether a PUT may create.
	AllowCreateOnUpdate(ctx context.Context) bool
	// AllowUnconditionalUpdate reports whether an update may omit resourceVersion.
	AllowUnconditionalUpdate(ctx context.Context) bool
}
