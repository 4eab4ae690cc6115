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
// Its methods have the names and meaning that Kubernetes gives them, so that
// the library strategies for custom resources fit as they are.
type Strategy interface {
	// NamespaceScoped says whether objects of the kind live in a namespace.
	NamespaceScoped() bool
	// PrepareForCreate sets what users may not set, before validation.
	PrepareForCreate(ctx context.Context, obj runtime.Object)
	// Validate checks a new object and changes nothing.
	Validate(ctx context.Context, obj runtime.Object) field.ErrorList
	// WarningsOnCreate returns advice that does not refuse the object.
	WarningsOnCreate(ctx context.Context, obj runtime.Object) []string
	// PrepareForUpdate restores the fields that users may not change and increments
	// the generation.
	PrepareForUpdate(ctx context.Context, obj, old runtime.Object)
	// ValidateUpdate checks the change and changes nothing.
	ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList
	// WarningsOnUpdate returns advice that does not refuse the change.
	WarningsOnUpdate(ctx context.Context, obj, old runtime.Object) []string
	// Canonicalize converts a valid object to its stored form.
	Canonicalize(obj runtime.Object)
	// AllowCreateOnUpdate says whether a PUT may create.
	AllowCreateOnUpdate(ctx context.Context) bool
	// AllowUnconditionalUpdate says whether an update may omit resourceVersion.
	AllowUnconditionalUpdate(ctx context.Context) bool
}
