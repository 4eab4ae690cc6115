package lifecycle

import (
	"maps"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PropagateGrace is an annotation by which an owner passes a grace period on to
// its dependents when it is deleted (the garbage collection proposal's open question 2): a number of
// seconds, or "true" for the grace period of the delete request; it is ignored when
// the request has none.
//
// It is also the name of the finalizer that holds an owner, deleted in the
// background, until all its dependents are being deleted: after the owner's removal
// its grace period would be unknown. The collector removes the finalizer.
const PropagateGrace = "lifecycle.exeunt.dev/propagate-grace-period"

// PropagatedGrace is the grace period that an owner passes on.
func PropagatedGrace(m *metav1.ObjectMeta) (seconds int64, ok bool) {
	return read(m.Annotations, PropagateGrace, parseGrace)
}

// WithPropagatedGrace makes an object pass a grace period on. It replaces the map
// of annotations and does not change the old one.
func WithPropagatedGrace(m *metav1.ObjectMeta, seconds int64) {
	annotations := maps.Clone(m.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[PropagateGrace] = strconv.FormatInt(seconds, 10)
	m.Annotations = annotations
}

// settleGrace replaces the annotation's "true" by the request's grace period.
func settleGrace(m *metav1.ObjectMeta, d Deletion) {
	if g := d.Options.GracePeriodSeconds; g != nil && m.Annotations[PropagateGrace] == "true" {
		WithPropagatedGrace(m, boundGrace(*g))
	}
}
