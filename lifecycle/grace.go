package lifecycle

import (
	"maps"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// manner is how a delete request applies to an object.
type manner int

const (
	immediate manner = iota // the kind, or the state of the object, allows no grace period
	graceful                // deletion time and grace period have been set
	pending                 // a graceful deletion is in progress and does not change
)

// maxGrace bounds a grace period to a hundred years. A larger one would
// overflow a time.Duration and end in the past, or in a year that RFC 3339
// cannot write.
const maxGrace int64 = 100 * 365 * 24 * 60 * 60

// applyGrace sets the deletion time and grace period for a request. It changes m
// only if it returns graceful.
func applyGrace(m *metav1.ObjectMeta, d Deletion) manner {
	if d.Rules.Graceful == nil {
		return immediate
	}
	var requested *int64
	if g := d.Options.GracePeriodSeconds; g != nil {
		bounded := boundGrace(*g)
		requested = &bounded
	}
	if m.DeletionTimestamp != nil {
		return shorten(m, requested, d.Now)
	}
	seconds, ok := d.Rules.Graceful(d.Body, requested)
	if !ok {
		return immediate
	}
	seconds = boundGrace(seconds)
	m.DeletionTimestamp = wholeSeconds(d.Now.Add(time.Duration(seconds) * time.Second))
	m.DeletionGracePeriodSeconds = &seconds
	nextGeneration(m)
	return graceful
}

// shorten applies a request to an object that is already DELETING. A grace period
// can only become shorter. If it is over, the next delete completes the deletion;
// this also repairs a removal that failed half-way.
func shorten(m *metav1.ObjectMeta, requested *int64, now time.Time) manner {
	if graceOver(m.DeletionGracePeriodSeconds) {
		return immediate
	}
	current := boundGrace(*m.DeletionGracePeriodSeconds)
	if requested == nil || *requested >= current {
		return pending
	}
	seconds := *requested
	asked := m.DeletionTimestamp.Add(time.Duration(seconds-current) * time.Second)
	if asked.Before(now) {
		asked = now
		if seconds != 0 {
			// The shorter period is over already, but the client requested a
			// graceful deletion: use the shortest one, 1 s, so that the agent
			// that shuts the object down sees it and completes it with a 0.
			seconds = 1
		}
	}
	// A deletion time that has passed stays where it is: it never moves later.
	if asked.Before(m.DeletionTimestamp.Time) {
		m.DeletionTimestamp = wholeSeconds(asked)
	}
	m.DeletionGracePeriodSeconds = &seconds
	return graceful
}

// endGrace makes an object DELETING with no grace left: only finalizers, or
// the kind's own rule, still hold it.
func endGrace(m *metav1.ObjectMeta, d Deletion) {
	if m.DeletionTimestamp == nil && !d.Rules.NoGrace {
		nextGeneration(m)
	}
	if m.DeletionTimestamp == nil || m.DeletionTimestamp.After(d.Now) {
		m.DeletionTimestamp = wholeSeconds(d.Now)
	}
	if !d.Rules.NoGrace {
		m.DeletionGracePeriodSeconds = new(int64)
	}
}

// nextGeneration increments the generation, so that controllers see that the
// desired state has changed. Kinds without a generation stay without one.
func nextGeneration(m *metav1.ObjectMeta) {
	if m.Generation > 0 {
		m.Generation++
	}
}

// graceOver reports whether a stored grace period no longer holds the object.
func graceOver(seconds *int64) bool { return seconds == nil || *seconds == 0 }

// boundGrace limits a grace period to maxGrace. A negative one means 1 second.
func boundGrace(seconds int64) int64 {
	if seconds < 0 {
		return 1
	}
	return min(seconds, maxGrace)
}

// wholeSeconds is a time in UTC without fractions, as it is stored.
func wholeSeconds(t time.Time) *metav1.Time {
	whole := metav1.NewTime(t.UTC().Truncate(time.Second))
	return &whole
}

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
