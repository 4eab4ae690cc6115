package mesh

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/mesh/v1alpha1"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// How a node left, for people: on its token, in an Event and in the log.
const (
	howDrained = "drained: the node said that it had finished"
	howForced  = "removed by force: its object was taken away"
)

// Leave asks, for the node itself, that it be drained. The node says Drained
// when it has finished. Denial: UnknownNode.
func (m *Mesh) Leave(ctx context.Context, n Node) error {
	return m.requestDrain(ctx, n, "system:node:"+n.Project+":"+n.Name)
}

// requestDrain deletes the object of a node, as anybody might: the finalizer
// keeps it until the node has left. Asking again changes nothing.
func (m *Mesh) requestDrain(ctx context.Context, n Node, actor string) error {
	uid := types.UID(n.UID)
	_, err := m.store.Delete(ctx, store.DeleteRequest{
		Key:     object.Key{Kind: storage, Namespace: n.Project, Name: n.Name},
		Options: metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
		Actor:   actor,
	})
	if object.Is(err, object.NotFound) || object.Is(err, object.Conflict) {
		return errUnknownNode // the name is free, or another node's
	}
	if err != nil {
		return fmt.Errorf("drain node %s: %w", n.Name, err)
	}
	m.engine.Wake()
	return nil
}

// Drained takes the node's word that it has finished its connections: it is
// removed at once. It may be repeated: a node that is not there any more gets
// UnknownNode, which is what it wanted. Denials: NotDraining when nobody asked
// it to leave, UnknownNode.
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
			denial = deny(v1alpha1.ReasonNotDraining, "nobody asked node %s to leave", n.Name)
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

// remove takes a node out of the mesh: its row, its object, and a note on the
// token that it came by. The node's word and its deadline both end here, each
// in a transaction with the lock on the revision: one is first, and the other
// finds no row.
func (m *Mesh) remove(ctx context.Context, tx *store.Tx, found member, how string, now time.Time) error {
	n := found.node
	var b sqldb.Batch
	b.Exec(deleteNode, n.uid) // first: the trigger on the object looks for it
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
	return m.tellLeft(ctx, tx, *n, how, now)
}

// howTimedOut says why a node was removed without its word.
func howTimedOut(n node, waited, unreachable time.Duration, now time.Time) string {
	if silent := now.Sub(n.seenAt()); silent >= unreachable {
		return fmt.Sprintf("removed without its word after %s: unreachable, not heard of since %s", waited, n.seenAt().Format(time.RFC3339))
	}
	return fmt.Sprintf("removed without its word after %s: it is heard of, but did not finish in time", waited)
}
