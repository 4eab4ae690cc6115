package gc

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/kind/event"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/review"
)

// guardRecheck is how often a held deletion is counted again: its cascade may
// shrink without a write to the object. A confirmation is a write, so a trigger
// enqueues the object at once.
const guardRecheck = 10 * time.Second

// guard counts the objects that a deletion would remove, before any other work on
// it, and then lets the deletion pass or holds it. Both happen in one transaction.
// A dependent that is created later is not counted: it is collected like any
// dependent of an owner that is gone.
func (s *session) guard(ctx context.Context, o *item) (review.Verdict, error) {
	m, err := object.ParseMeta(o.Body)
	if err != nil {
		return review.Verdict{}, err
	}
	g := lifecycle.GuardOf(&m)
	excess, err := Exceeds(ctx, &s.tx.Reader, s.kinds, o, g)
	if err != nil {
		return review.Verdict{}, err
	}
	if excess.Over {
		s.reportHeld(o, g, excess)
		return review.Again(guardRecheck), nil
	}
	lifecycle.LetPass(&m)
	return review.Acted(), s.updateDeleting(ctx, o, m)
}

func (s *session) reportHeld(o *item, g lifecycle.Guard, excess Excess) {
	message := fmt.Sprintf("the deletion waits: more than %d objects%s would go. How many: exeunt why. To confirm, set the annotation %s to that number. To call it off: exeunt restore",
		excess.Limit, excess.Where(), lifecycle.ConfirmCascade)
	if g.Confirmed > 0 {
		message = fmt.Sprintf("the deletion still waits: %d objects were confirmed, and more would go", g.Confirmed)
	}
	s.events = append(s.events, event.Event{
		About: o.Object, Type: corev1.EventTypeWarning, Reason: "CascadeHeld", Message: message,
		Source: reporter, Topic: fmt.Sprint(excess, g.Confirmed), Once: true, Elsewhere: true,
	})
}

// Where says for people which objects the limit is for.
func (e Excess) Where() string {
	if e.Namespace == "" {
		return ""
	}
	return " in namespace " + e.Namespace
}

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
