package lifecycle

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The collector's two finalizers say what happens to an object's dependents. A
// delete request adds and removes them, even on an object that is DELETING
// already: so a second request can change the policy of the first. All other
// finalizers belong to the clients that added them.

// finalizersOnDelete is the list of finalizers after a delete request. The
// result is always a new slice.
func finalizersOnDelete(d Deletion) []string {
	var added []string
	if d.Meta.DeletionTimestamp == nil {
		added = d.Rules.DeleteFinalizers
	}
	wanted := policyFinalizer(d.Policy())
	if _, ok := PropagatedGrace(&d.Meta); ok && wanted == "" {
		wanted = PropagateGrace
	}
	out := make([]string, 0, len(d.Meta.Finalizers)+len(added)+1)
	for _, f := range d.Meta.Finalizers {
		if f == wanted || policyOf(f) == "" && f != PropagateGrace {
			out = append(out, f)
		}
	}
	for _, f := range added {
		if !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	if wanted != "" && !slices.Contains(out, wanted) {
		out = append(out, wanted)
	}
	return out
}

// Policy is the propagation policy: that of the request, else that of a finalizer
// on the object, else the kind's default.
func (d Deletion) Policy() metav1.DeletionPropagation {
	// Old clients still send orphanDependents.
	if orphan := d.Options.OrphanDependents; orphan != nil {
		if *orphan {
			return metav1.DeletePropagationOrphan
		}
		return metav1.DeletePropagationBackground
	}
	if d.Options.PropagationPolicy != nil {
		return *d.Options.PropagationPolicy
	}
	for _, f := range d.Meta.Finalizers {
		if p := policyOf(f); p != "" {
			return p
		}
	}
	return d.Rules.DefaultPolicy
}

// policyOf is the policy that a finalizer stands for, or "".
func policyOf(finalizer string) metav1.DeletionPropagation {
	switch finalizer {
	case metav1.FinalizerOrphanDependents:
		return metav1.DeletePropagationOrphan
	case metav1.FinalizerDeleteDependents:
		return metav1.DeletePropagationForeground
	}
	return ""
}

// policyFinalizer is the finalizer of a policy; "" for Background, which needs
// none.
func policyFinalizer(p metav1.DeletionPropagation) string {
	switch p {
	case metav1.DeletePropagationOrphan:
		return metav1.FinalizerOrphanDependents
	case metav1.DeletePropagationForeground:
		return metav1.FinalizerDeleteDependents
	}
	return ""
}
