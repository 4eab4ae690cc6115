package mesh

import (
	"context"
	"fmt"

	"github.com/exeunt/exeunt/mesh/v1alpha1"
	"github.com/exeunt/exeunt/sqldb"
)

// Heartbeat notes that a node was heard of, and tells it what the mesh wants of
// it. It writes the node's own row and no object; a node that was unreachable is
// put under review, which says that it is back. Denial: UnknownNode, when it has
// been removed meanwhile.
func (m *Mesh) Heartbeat(ctx context.Context, n Node) (v1alpha1.Heartbeat, error) {
	answer := v1alpha1.Heartbeat{HeartbeatSeconds: seconds(m.opts.Heartbeat)}
	ready, err := m.heard(ctx, n.UID)
	if err != nil {
		return answer, err
	}
	if !ready {
		m.engine.Wake()
	}
	answer.Self, err = m.self(ctx, n)
	return answer, err
}

// heard is the transaction of a heartbeat. The removal of a node deletes its
// row: whichever of the two is first, a node that is gone is not heard of.
func (m *Mesh) heard(ctx context.Context, uid string) (ready bool, err error) {
	tx, err := m.db.Begin(ctx)
	if err != nil {
		return false, fmt.Errorf("heartbeat: %w", err)
	}
	defer tx.Rollback() // does nothing after a commit
	now, registered := m.opts.Now(), false
	var b sqldb.Batch
	b.Query(func(row sqldb.Row) error {
		registered = true
		return row.Scan(&ready)
	}, seen, uid, now.UnixMilli())
	if err := tx.Send(ctx, &b); err != nil {
		return false, fmt.Errorf("heartbeat: %w", err)
	}
	if !registered {
		return false, errUnknownNode
	}
	if !ready {
		b = sqldb.Batch{}
		m.engine.Enqueue(&b, uid, "heard", now)
		if err := tx.Send(ctx, &b); err != nil {
			return false, fmt.Errorf("heartbeat: %w", err)
		}
	}
	return ready, tx.Commit(ctx)
}
