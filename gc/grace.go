package gc

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/review"
)

// askRecheck is how often an owner that passes its grace period on looks whether the
// deletes of its dependents were admitted.
const askRecheck = 2 * time.Second

// propagate is the finalizer of an owner that passes its grace period on: it
// deletes the dependents, and then removes the finalizer from the owner.
func (s *session) propagate(ctx context.Context, o *item) (review.Verdict, error) {
	if err := s.noteGrace(o); err != nil {
		return review.Verdict{}, err
	}
	waiting := len(s.deferred)
	v, err := s.collect(ctx, string(o.UID), s.tx.Dependents, s.judge)
	if err != nil || s.budget <= 0 {
		return v, err
	}
	if len(s.deferred) > waiting {
		return review.Again(askRecheck), nil // without its owner a dependent has no grace period
	}
	return s.removeFinalizer(ctx, o.UID, lifecycle.PropagateGrace)
}

// noteGrace remembers the grace period that an owner under review passes on.
func (s *session) noteGrace(o *item) error {
	m, err := object.ParseMeta(o.Body)
	if err != nil {
		return err
	}
	if seconds, ok := lifecycle.PropagatedGrace(&m); ok {
		s.grace[o.UID] = seconds
	}
	return nil
}

// inherited returns the grace period, in seconds, that a dependent gets from its
// owners: the longest of those under review.
func (s *session) inherited(m *metav1.ObjectMeta) (seconds int64, ok bool) {
	for i := range m.OwnerReferences {
		if g, passed := s.grace[m.OwnerReferences[i].UID]; passed {
			seconds, ok = max(seconds, g), true
		}
	}
	return seconds, ok
}
