// Package lifecycle holds the rules for the life of an object: before create,
// before update, before delete, finalizers, grace periods and cascade policy.
//
// It is pure: its functions take values and return decisions, time and random
// values are arguments, and nothing is read or written. Every write of an object
// uses it: library handlers, the fast path, the collector.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/object"
)

// maxNameBase is how many bytes of a generateName are kept, so that the name with
// its suffix fits a DNS label.
const maxNameBase = 58

// Creation is the input of a create besides the object: request, time and random
// values.
type Creation struct {
	Namespace string // of the request
	Now       time.Time
	UID       types.UID
	Suffix    string // 5 characters that complete a generateName
	Restored  bool   // the object comes back from the archive
	DryRun    bool   // nothing will be stored
}

// BeforeCreate turns what a client sent into an object that can be stored, or
// refuses it: BadRequest for a namespace that contradicts the request, Invalid for
// fields that break a rule, Versioned for a resourceVersion, unless it is a dry run, as
// Kubernetes does it. obj is changed in place.
//
// The generation stays as the client sent it: the kind's strategy sets it,
// and kinds without a generation store the client's value.
func BeforeCreate(ctx context.Context, s Strategy, obj runtime.Object, c Creation) (warnings []string, err error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, fmt.Errorf("before create of %T: %w", obj, err)
	}
	if err := matchNamespace(m, c.Namespace, s.NamespaceScoped()); err != nil {
		return nil, err
	}
	version := m.GetResourceVersion()
	if err := fillSystemFields(m, c); err != nil {
		return nil, fmt.Errorf("before create of %T: %w", obj, err)
	}
	warnings, errs := s.Create(ctx, obj)
	errs = append(checkMarks(m, nil, c.Restored), errs...)
	if len(errs) == 0 {
		// After the kind's own rules, whose messages are more precise.
		errs = apivalidation.ValidateObjectMetaAccessor(m, s.NamespaceScoped(), newNameRule, metadataPath)
	}
	if len(errs) > 0 {
		return nil, object.InvalidFields(distinct(errs))
	}
	if !unversioned(version) && !c.DryRun {
		return nil, object.Errorf(object.Versioned, "resourceVersion should not be set on objects to be created")
	}
	return warnings, nil
}

// fillSystemFields sets the fields that clients cannot set. An error is a bug in
// the calling code.
func fillSystemFields(m metav1.Object, c Creation) error {
	if c.UID == "" || c.Now.IsZero() {
		return errors.New("no uid or time given")
	}
	m.SetResourceVersion("")
	m.SetSelfLink("")
	m.SetDeletionTimestamp(nil)
	m.SetDeletionGracePeriodSeconds(nil)
	m.SetUID(c.UID)
	m.SetCreationTimestamp(*wholeSeconds(c.Now))
	if m.GetName() != "" || m.GetGenerateName() == "" {
		return nil
	}
	if c.Suffix == "" {
		return errors.New("no suffix given for a generateName")
	}
	m.SetName(cutName(m.GetGenerateName()) + c.Suffix)
	return nil
}

// cutName cuts between two characters: a part of one is not valid UTF-8.
func cutName(base string) string {
	if len(base) <= maxNameBase {
		return base
	}
	end := maxNameBase
	for end > 0 && !utf8.RuneStart(base[end]) {
		end--
	}
	return base[:end]
}

var metadataPath = field.NewPath("metadata")

// matchNamespace sets the namespace of the request on an object. A client may omit
// it. For a cluster-scoped kind the client's value is ignored.
func matchNamespace(m metav1.Object, requested string, namespaced bool) error {
	switch {
	case !namespaced:
		m.SetNamespace("")
	case m.GetNamespace() == "":
		m.SetNamespace(requested)
	case m.GetNamespace() != requested:
		return object.BadRequestf("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// unversioned reports whether a resourceVersion names no version.
func unversioned(resourceVersion string) bool {
	return resourceVersion == "" || resourceVersion == "0"
}

// maxName is the length of the longest new name, in bytes. An index of PostgreSQL has no
// entry above 2,704 bytes, and in a path each byte may take three.
const maxName = 1024

// newNameRule is the rule for the names of new objects, of all kinds.
func newNameRule(name string, prefix bool) []string {
	if len(name) > maxName && !prefix {
		return []string{validation.MaxLenError(maxName)}
	}
	return nameRule(name, prefix)
}

// nameRule is what every stored name has held to: a path can have it.
func nameRule(name string, prefix bool) []string {
	if prefix {
		name += "x" // as the suffix of a generateName
	}
	if errs := content.IsPathSegmentName(name); len(errs) > 0 {
		return errs // in the words of Kubernetes
	}
	if problem := object.NameProblem(name); problem != "" {
		return []string{problem}
	}
	return nil
}

// distinct drops errors with equal texts: kinds check metadata too.
func distinct(list field.ErrorList) field.ErrorList {
	seen := make(map[string]bool, len(list))
	out := make(field.ErrorList, 0, len(list))
	for _, err := range list {
		if text := err.Error(); !seen[text] {
			seen[text] = true
			out = append(out, err)
		}
	}
	return out
}

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
	// whether the deletion is graceful at all. Nil means never.
	Graceful func(body []byte, requested *int64) (seconds int64, graceful bool)

	// MarkFirst says that a graceful deletion with no time left is written before the object
	// is removed by a second delete, as kube-apiserver does: so watches see its deletion time.
	MarkFirst bool

	// NoGrace: the mark of a deletion is its time alone. The object gets no grace
	// period and keeps its generation, as Kubernetes marks a Namespace and a
	// CustomResourceDefinition. Graceful must be nil.
	NoGrace bool

	// MarkDeleting changes a stored body as the object becomes DELETING (a
	// Namespace's phase becomes Terminating). Nil means nothing to change.
	MarkDeleting func(body []byte, now time.Time) ([]byte, error)

	// MarkActive is the inverse of MarkDeleting, for a deletion that is called
	// off. Nil means nothing to change.
	MarkActive func(body []byte) ([]byte, error)

	// Removable reports whether a DELETING object whose metadata.finalizers are
	// empty may be removed (a Namespace may not while spec.finalizers are left).
	// Nil means that it can.
	Removable func(body []byte) bool
}
