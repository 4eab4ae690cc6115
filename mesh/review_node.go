package mesh

import (
	"context"
	"fmt"
	"time"

	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// facts are what decides about a node.
type facts struct {
	registered bool // it has a row
	exists     bool // it has an object
	deleting   bool // which is being deleted
	ready      bool // as the object says
	lastSeen   time.Time
	deadline   time.Time // of its drain
}

// step is what a review does.
type step int

const (
	nothing     step = iota // and the review is over
	wait                    // look again at the time that comes with it
	forget                  // the object is gone: so is the node
	timeOut                 // its time to drain is over
	sayDraining             // then look again at the deadline
	sayReady                // it is heard of again
	sayNotHeard             // it is not heard of any more
)

// minimumPause keeps a review from spinning about a deadline of this moment.
const minimumPause = 100 * time.Millisecond

// next decides. At is when to look again.
func next(f facts, now time.Time, unreachableAfter time.Duration) (do step, at time.Time) {
	silentAt := f.lastSeen.Add(unreachableAfter)
	switch {
	case !f.registered:
		return nothing, time.Time{}
	case !f.exists:
		return forget, time.Time{}
	case f.deleting && !now.Before(f.deadline):
		return timeOut, time.Time{}
	case f.deleting:
		return sayDraining, f.deadline
	case !now.Before(silentAt) && f.ready:
		return sayNotHeard, time.Time{}
	case !now.Before(silentAt):
		return nothing, time.Time{} // a heartbeat puts it under review
	case !f.ready:
		return sayReady, silentAt
	}
	return wait, silentAt
}

// Review sees to nodes that are not heard of, and sees those out that are to
// leave: review.Reviewer.
func (m *Mesh) Review(ctx context.Context, tx *store.Tx, now time.Time, tasks []review.Task) ([]review.Verdict, error) {
	verdicts := make([]review.Verdict, len(tasks))
	for i, task := range tasks {
		v, err := m.review(ctx, tx, now, task.Key)
		if err == nil {
			err = tx.Flush(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("review node %s: %w", task.Key, err)
		}
		verdicts[i] = v
	}
	return verdicts, nil
}

func (m *Mesh) review(ctx context.Context, tx *store.Tx, now time.Time, uid string) (review.Verdict, error) {
	found, err := find(ctx, tx, uid)
	if err != nil {
		return review.Verdict{}, err
	}
	f := facts{registered: found.node != nil, exists: found.object != nil}
	if f.registered {
		f.ready, f.lastSeen = found.node.ready, found.node.seenAt()
	}
	if f.exists {
		o, err := found.object.decode()
		if err != nil {
			return review.Verdict{}, err
		}
		f.deleting, f.deadline = found.object.Deleting, found.object.deadline(o.Spec)
	}
	do, at := next(f, now, m.opts.UnreachableAfter)
	again := review.Again(max(at.Sub(now), minimumPause))
	switch do {
	case nothing:
		return review.Kept(), nil
	case wait:
		return again, nil
	case forget:
		return review.Acted(), m.remove(ctx, tx, found, howForced, now)
	case timeOut:
		waited := now.Sub(time.Unix(found.object.deletion, 0)).Round(time.Second)
		return review.Acted(), m.remove(ctx, tx, found, howTimedOut(*found.node, waited, m.opts.UnreachableAfter, now), now)
	case sayDraining:
		return again, m.sayDraining(tx, found, at, now)
	case sayReady:
		_, err := m.sayReady(ctx, tx, found, true, now)
		return again, err
	default:
		said, err := m.sayReady(ctx, tx, found, false, now)
		if !said {
			return again, err
		}
		return review.Acted(), err
	}
}

func (m *Mesh) sayDraining(tx *store.Tx, found member, deadline, now time.Time) error {
	o, err := found.object.decode()
	if err != nil {
		return err
	}
	if o.Status.DrainDeadline != nil {
		return nil // it has been said: a review that changes nothing writes nothing
	}
	setDrainingStatus(o, *found.node, deadline, now)
	_, err = rewrite(tx, found.object, o)
	return err
}

// sayReady says on row and object whether the node is heard of, unless it was
// heard of since it was looked at.
func (m *Mesh) sayReady(ctx context.Context, tx *store.Tx, found member, ready bool, now time.Time) (said bool, err error) {
	o, err := found.object.decode()
	if err != nil {
		return false, err
	}
	n := *found.node
	n.ready = ready
	var b sqldb.Batch
	b.Query(func(row sqldb.Row) error {
		said = true
		return row.Scan(new(string))
	}, setReady, n.uid, ready, n.lastSeen)
	if err := tx.Send(ctx, &b); err != nil || !said {
		return false, err
	}
	if !ready {
		m.opts.Logger.Warn("node is not heard of", "project", n.project, "name", n.name, "since", n.seenAt())
	}
	setReadyStatus(o, n, now)
	_, err = rewrite(tx, found.object, o)
	return true, err
}
