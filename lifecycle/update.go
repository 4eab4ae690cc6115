package lifecycle

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/object"
)

// Change is the input of an update besides the objects.
type Change struct {
	Namespace string // of the request
}

// Updated is the result of BeforeUpdate.
type Updated struct {
	// Remove says that the update removed the last finalizer of a DELETING object
	// whose grace period is over: unless the kind's Removable refuses, the same
	// transaction removes the object.
	Remove   bool
	Warnings []string
}

// BeforeUpdate turns obj into the successor of old, or refuses it: BadRequest
// for a namespace that contradicts the request, Invalid for fields that break a
// rule. obj is changed in place; in old the strategy may set defaults. Both have their resourceVersion;
// CheckVersion and finally the store check that they agree.
func BeforeUpdate(ctx context.Context, s Strategy, obj, old runtime.Object, c Change) (Updated, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return Updated{}, fmt.Errorf("before update of %T: %w", obj, err)
	}
	was, err := meta.Accessor(old)
	if err != nil {
		return Updated{}, fmt.Errorf("before update of %T: %w", old, err)
	}
	if err := matchNamespace(m, c.Namespace, s.NamespaceScoped()); err != nil {
		return Updated{}, err
	}
	if unversioned(m.GetResourceVersion()) && s.AllowUnconditionalUpdate(ctx) {
		m.SetResourceVersion(was.GetResourceVersion())
	}
	m.SetGeneration(was.GetGeneration()) // the strategy increments it
	keepSystemFields(m, was)
	warnings, refused := s.Update(ctx, obj, old)

	errs := apivalidation.ValidateObjectMetaAccessor(m, s.NamespaceScoped(), nameRule, metadataPath)
	errs = append(errs, apivalidation.ValidateObjectMetaAccessorUpdate(m, was, metadataPath)...)
	errs = append(errs, checkMarks(m, was, false)...)
	errs = append(errs, refused...)
	if len(errs) > 0 {
		return Updated{}, object.InvalidFields(distinct(errs))
	}
	return Updated{Remove: LastFinalizerGone(m, was), Warnings: warnings}, nil
}

// keepSystemFields restores fields that an update may omit but not change. The
// validation after it refuses other values, except for the selfLink, which is
// obsolete.
func keepSystemFields(m, was metav1.Object) {
	m.SetSelfLink("")
	if m.GetUID() == "" {
		m.SetUID(was.GetUID())
	}
	if created := was.GetCreationTimestamp(); !created.IsZero() {
		m.SetCreationTimestamp(created)
	}
	if at := was.GetDeletionTimestamp(); !at.IsZero() {
		m.SetDeletionTimestamp(at.DeepCopy())
	}
	if grace := was.GetDeletionGracePeriodSeconds(); grace != nil && m.GetDeletionGracePeriodSeconds() == nil {
		seconds := *grace
		m.SetDeletionGracePeriodSeconds(&seconds)
	}
}

// LastFinalizerGone reports whether a change removed the last finalizer of a DELETING
// object whose grace period is over, so that the object must be removed.
func LastFinalizerGone(m, was metav1.Object) bool {
	return len(m.GetFinalizers()) == 0 &&
		was.GetDeletionTimestamp() != nil &&
		graceOver(was.GetDeletionGracePeriodSeconds())
}

// CheckVersion compares the resourceVersion of an update with the object's current
// one. Without a version ("" or "0") the update is allowed if the kind allows
// unconditional updates. Errors: Conflict, Invalid, or BadRequest for a version
// that is not a number.
func CheckVersion(sent, current string, unconditional bool) error {
	if unversioned(sent) {
		if unconditional {
			return nil
		}
		return object.InvalidFields(field.ErrorList{
			field.Invalid(metadataPath.Child("resourceVersion"), 0, "must be specified for an update"),
		})
	}
	if _, err := object.ParseResourceVersion(sent); err != nil {
		return err
	}
	if sent != current {
		return object.Errorf(object.Conflict,
			"the object has been modified; please apply your changes to the latest version and try again")
	}
	return nil
}
