package gc

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/exeunt/exeunt/event"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/review"
)

// guardRecheck is how soon a deletion that is held is counted again: what it
// would take with it may have become less without anybody writing to it. A
// confirmation needs no such time: writing it puts the object under review.
const guardRecheck = 10 * time.Second

// guard counts what the deletion of an object takes with it, before anything
// else is done about it, and lets it pass or holds it. Counting and letting pass
// are one transaction: what is added later was not there to be counted, and goes
// with an owner that is gone, as anywhere.
func (s *session) guard(ctx context.Context, o *item) (review.Verdict, error) {
	m, err := object.ParseMeta(o.Body)
	if err != nil {
		return review.Verdict{}, err
	}
	g := lifecycle.GuardOf(&m)
	if allowed := g.Allowed(); allowed < lifecycle.MostCounted {
		more, err := s.exceeds(ctx, o, allowed)
		if err != nil {
			return review.Verdict{}, err
		}
		if more {
			s.tellHeld(o, g)
			return review.Again(guardRecheck), nil
		}
	}
	lifecycle.LetPass(&m)
	return review.Acted(), s.changed(ctx, o, m)
}

func (s *session) tellHeld(o *item, g lifecycle.Guard) {
	message := fmt.Sprintf("the deletion waits: more than %d objects would go. How many: exeunt why. To confirm, set the annotation %s to that number. To call it off: exeunt restore",
		g.Limit, lifecycle.ConfirmCascade)
	switch {
	case g.Mistaken != "":
		message = fmt.Sprintf("the deletion still waits: the annotation %s is %q; it must be the number of objects that may go", lifecycle.ConfirmCascade, g.Mistaken)
	case g.Confirmed > 0:
		message = fmt.Sprintf("the deletion still waits: %d objects were confirmed, and more would go", g.Confirmed)
	}
	s.events = append(s.events, event.Event{
		About: o.Object, Type: corev1.EventTypeWarning, Reason: "CascadeHeld", Message: message,
		Source: reporter, Topic: fmt.Sprint(g.Limit, g.Confirmed, g.Mistaken), Once: true, Elsewhere: true,
	})
}
