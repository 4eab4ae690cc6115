// Package lifecycle holds the rules for the life of an object: before create,
// before update, before delete, finalizers, grace periods and cascade policy.
//
// It is pure: its functions take values and return decisions, time and random
// values are arguments, and nothing is read or written. Every write of an object
// uses it: library handlers, the fast path, the collector.
package lifecycle

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// Rules are the differences between kinds in a deletion. The zero value is the
// common case: not graceful, dependents are deleted in the background.
type Rules struct {
	// Refuse returns an error if an object of this name must not be deleted (the
	// namespaces that clients expect to exist). If it is nil, any may be deleted.
	Refuse func(name string) error

	// DefaultPolicy is what a delete without propagationPolicy means when no
	// finalizer on the object says otherwise. Empty is Background.
	DefaultPolicy metav1.DeletionPropagation

	// DeleteFinalizers are added to an object when its deletion is requested.
	DeleteFinalizers []string

	// Graceful is the kind's rule for graceful deletion (the create and delete path's
	// CheckGracefulDelete): given the stored body and the grace period the
	// client requested, it returns the object's grace period in seconds, and
	// whether the deletion is graceful at all. Nil: never.
	Graceful func(body []byte, requested *int64) (seconds int64, graceful bool)

	// NoGrace: the mark of a deletion is its time alone. The object gets no grace
	// period and keeps its generation, as Kubernetes marks a Namespace and a
	// CustomResourceDefinition. Graceful must be nil.
	NoGrace bool

	// MarkDeleting changes a stored body as the object becomes DELETING (a
	// Namespace's phase becomes Terminating). Nil: nothing to change.
	MarkDeleting func(body []byte, now time.Time) ([]byte, error)

	// MarkActive is the inverse of MarkDeleting, for a deletion that is called
	// off. Nil: nothing to change.
	MarkActive func(body []byte) ([]byte, error)

	// Removable reports whether a DELETING object whose metadata.finalizers are
	// empty may be removed (a Namespace may not while spec.finalizers are left).
	// Nil: yes.
	Removable func(body []byte) bool
}
