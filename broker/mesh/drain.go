package mesh

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

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
