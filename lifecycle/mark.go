package lifecycle

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A mark is an annotation or a finalizer that the server sets on an object when its
// deletion begins. All that the guard knows is in marks, so no client changes them: not
// by an update of any kind, and not by a create that has them from the beginning.
//
// The guard's finalizer is also a setting: on an ACTIVE object it asks for a confirmation
// of any delete. So clients may add it, and remove it with the right to confirm (Confirms).

const (
	notYours  = "is set by the server alone"
	confirmIt = "holds the deletion until it is confirmed: set the annotation " + ConfirmCascade +
		" to the number of objects that may go; to call it off: exeunt restore"
)

// checkMarks refuses a write that changes marks, or sets an annotation of this server to
// a value that it would ignore. was is nil for a create.
func checkMarks(m, was metav1.Object, restored bool) (errs field.ErrorList) {
	errs = checkAnnotations(m.GetAnnotations(), annotationsOf(was), restored)
	has := m.GetFinalizers()
	var had []string
	deleting := false
	if was != nil {
		had, deleting = was.GetFinalizers(), was.GetDeletionTimestamp() != nil
	}
	path := metadataPath.Child("finalizers")
	if deleting && slices.Contains(had, ConfirmCascade) && !slices.Contains(has, ConfirmCascade) {
		errs = append(errs, field.Forbidden(path, ConfirmCascade+" "+confirmIt))
	}
	if is, was := slices.Contains(has, PropagateGrace), slices.Contains(had, PropagateGrace); is && !was || !is && was && deleting {
		errs = append(errs, field.Forbidden(path, PropagateGrace+" "+notYours))
	}
	return errs
}

// Confirms reports whether a write lets a cascade pass that the guard would hold: it
// confirms a number of objects, or removes the guard's finalizer from an ACTIVE object.
// old is nil for a create.
func Confirms(m, old metav1.Object) bool {
	confirmed, guarded := annotationsOf(old)[ConfirmCascade], old != nil && slices.Contains(old.GetFinalizers(), ConfirmCascade)
	now := m.GetAnnotations()[ConfirmCascade]
	return now != "" && now != confirmed || guarded && !slices.Contains(m.GetFinalizers(), ConfirmCascade)
}
