package mesh

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// facts are the input of next.
type facts struct {
	registered bool // it has a row
	exists     bool // it has an object
	deleting   bool // which is being deleted
	ready      bool // the object's condition
	lastSeen   time.Time
	deadline   time.Time // of its drain
}

// step is the action of a review.
type step int

const (
	nothing         step = iota // and the review ends
	wait                        // until the time that is returned
	forget                      // the object is gone: remove the row
	timeOut                     // the drain deadline has passed: remove the node
	markDraining                // write it, then wait for the deadline
	markReady                   // heartbeats arrive again
	markUnreachable             // no heartbeat in time
)

// minimumPause is the shortest wait for a deadline, against a busy loop.
const minimumPause = 100 * time.Millisecond

// next decides. at is when the next review is due.
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
		return markDraining, f.deadline
	case !now.Before(silentAt) && f.ready:
		return markUnreachable, time.Time{}
	case !now.Before(silentAt):
		return nothing, time.Time{} // the next heartbeat puts it under review
	case !f.ready:
		return markReady, silentAt
	}
	return wait, silentAt
}

// Review marks nodes without heartbeats as unreachable, and removes nodes at
// the end of their drain: review.Reviewer.
func (m *Mesh) Review(ctx context.Context, tx *store.Tx, now time.Time, tasks []review.Task) ([]review.Verdict, error) {
	verdicts := make([]review.Verdict, len(tasks))
	for i, task := range tasks {
		v, err := m.review(ctx, tx, now, task.Key)
		if err == nil {
			err = tx.Flush()
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
		waited := now.Sub(time.Unix(found.object.Deletion, 0)).Round(time.Second)
		return review.Acted(), m.remove(ctx, tx, found, howTimedOut(*found.node, waited, m.opts.UnreachableAfter, now), now)
	case markDraining:
		return again, m.markDraining(tx, found, at, now)
	case markReady:
		_, err := m.markReady(ctx, tx, found, true, now)
		return again, err
	default:
		written, err := m.markReady(ctx, tx, found, false, now)
		if !written {
			return again, err
		}
		return review.Acted(), err
	}
}

func (m *Mesh) markDraining(tx *store.Tx, found member, deadline, now time.Time) error {
	o, err := found.object.decode()
	if err != nil {
		return err
	}
	if o.Status.DrainDeadline != nil {
		return nil // already written: a review that changes nothing writes nothing
	}
	setDrainingStatus(o, *found.node, deadline, now)
	_, err = rewrite(tx, found.object, o)
	return err
}

// markReady writes to row and object whether the node sends heartbeats, unless a
// heartbeat arrived after the review read the row.
func (m *Mesh) markReady(ctx context.Context, tx *store.Tx, found member, ready bool, now time.Time) (written bool, err error) {
	o, err := found.object.decode()
	if err != nil {
		return false, err
	}
	n := *found.node
	n.ready = ready
	var b sqldb.Batch
	b.Found(&written, setReady, n.uid, ready, n.lastSeen)
	if err := tx.Send(ctx, &b); err != nil || !written {
		return false, err
	}
	if !ready {
		m.opts.Logger.Warn("node is unreachable: no heartbeat", "project", n.project, "name", n.name, "since", n.seenAt())
	}
	setReadyStatus(o, n, now)
	_, err = rewrite(tx, found.object, o)
	return true, err
}

// How a node left: shown on its token, in an Event and in the log.
const (
	howDrained = "drained: the node said that it had finished"
	howForced  = "removed by force: its object was taken away"
)

// Leave requests the drain of the node on its own behalf. The node calls
// Drained when it has finished. Denial: UnknownNode.
func (m *Mesh) Leave(ctx context.Context, n Node) error {
	return m.requestDrain(ctx, n, "system:node:"+n.Project+":"+n.Name)
}

// requestDrain deletes the object of a node, as any client can: the finalizer
// keeps the object until the node has left. It is idempotent.
func (m *Mesh) requestDrain(ctx context.Context, n Node, actor string) error {
	uid := types.UID(n.UID)
	_, err := m.store.Delete(ctx, store.DeleteRequest{
		Key:     object.Key{Kind: storage, Namespace: n.Project, Name: n.Name},
		Options: metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
		Actor:   actor,
	})
	if object.Is(err, object.NotFound) || object.Is(err, object.Conflict) {
		return errUnknownNode // the name is free, or another node has it
	}
	if err != nil {
		return fmt.Errorf("drain node %s: %w", n.Name, err)
	}
	m.engine.Wake()
	return nil
}

// Drained accepts the node's acknowledgement that it has finished its
// connections, and removes the node at once. A repeated call gets UnknownNode:
// the node is already removed. Denials: NotDraining when no client requested
// the drain, UnknownNode.
func (m *Mesh) Drained(ctx context.Context, n Node) error {
	var denial *Denial
	err := m.store.Transact(ctx, func(tx *store.Tx) error {
		denial = nil
		found, err := find(ctx, tx, n.UID)
		switch {
		case err != nil:
			return err
		case found.node == nil:
			denial = errUnknownNode
			return nil
		case found.object != nil && !found.object.Deleting:
			denial = deny(v1alpha1.ReasonNotDraining, "node %s is not draining: request its drain first, with leave or by deleting its MeshNode", n.Name)
			return nil
		}
		return m.remove(ctx, tx, found, howDrained, m.opts.Now())
	})
	if err != nil {
		return fmt.Errorf("node %s drained: %w", n.Name, err)
	}
	if denial != nil {
		return denial
	}
	return nil
}

// remove takes a node out of the mesh: it deletes row and object, and records
// the end on the node's token. The acknowledgement and the deadline both call
// it, each in a transaction with the lock on the revision: the first removes,
// and the second finds no row.
func (m *Mesh) remove(ctx context.Context, tx *store.Tx, found member, how string, now time.Time) error {
	n := found.node
	var b sqldb.Batch
	b.Exec(deleteNode, n.uid) // first: the trigger on the object looks for the row
	b.Exec(leaveToken, n.token, now.UnixMilli(), how)
	if err := tx.Send(ctx, &b); err != nil {
		return err
	}
	if found.object != nil {
		if err := release(tx, found.object, how, now); err != nil {
			return err
		}
	}
	m.opts.Logger.Info("node left", "project", n.project, "name", n.name, "how", how)
	return m.recordLeft(ctx, tx, *n, how, now)
}

// howTimedOut says why a node was removed without acknowledgement.
func howTimedOut(n node, waited, unreachable time.Duration, now time.Time) string {
	if silent := now.Sub(n.seenAt()); silent >= unreachable {
		return fmt.Sprintf("removed without acknowledgement after %s: unreachable, no heartbeat since %s", waited, n.seenAt().Format(time.RFC3339))
	}
	return fmt.Sprintf("removed without acknowledgement after %s: it sends heartbeats, but did not finish in time", waited)
}
