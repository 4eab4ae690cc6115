package lifecycle

import (
	"maps"
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

// marks are the annotations that the server alone sets.
var marks = []string{HeldAbove}

const (
	notYours  = "is set by the server alone"
	confirmIt = "holds the deletion until it is confirmed: set the annotation " + ConfirmCascade +
		" to the number of objects that may go; to call it off: exeunt restore"
)

// checkMarks refuses a write that changes marks. was is nil for a create.
func checkMarks(m, was metav1.Object) (errs field.ErrorList) {
	now, has := m.GetAnnotations(), m.GetFinalizers()
	var before map[string]string
	var had []string
	deleting := false
	if was != nil {
		before, had, deleting = was.GetAnnotations(), was.GetFinalizers(), was.GetDeletionTimestamp() != nil
	}
	for _, name := range marks {
		value, ok := now[name]
		if old, found := before[name]; ok != found || value != old {
			errs = append(errs, field.Forbidden(metadataPath.Child("annotations").Key(name), notYours))
		}
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
	confirmed, guarded := "", false
	if old != nil {
		confirmed, guarded = old.GetAnnotations()[ConfirmCascade], slices.Contains(old.GetFinalizers(), ConfirmCascade)
	}
	now := m.GetAnnotations()[ConfirmCascade]
	return now != "" && now != confirmed || guarded && !slices.Contains(m.GetFinalizers(), ConfirmCascade)
}

// KeepMarks returns annotations with the marks that they had before, and whether they
// differ.
func KeepMarks(annotations, before map[string]string) (kept map[string]string, changed bool) {
	kept = annotations
	for _, name := range marks {
		old, had := before[name]
		if now, has := annotations[name]; has == had && now == old {
			continue
		}
		if !changed {
			kept, changed = maps.Clone(annotations), true
		}
		if !had {
			delete(kept, name)
			continue
		}
		if kept == nil {
			kept = map[string]string{}
		}
		kept[name] = old
	}
	return kept, changed
}
