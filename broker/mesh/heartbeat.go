package mesh

import (
	"context"
	"fmt"

	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
	"github.com/exeunt/exeunt/sqldb"
)

// Heartbeat records a heartbeat and answers whether the node must drain. It
// writes the node's own row and no object; it puts a node that was unreachable
// under review, which marks it ready again. Denial: UnknownNode, when the node
// has been removed meanwhile.
func (m *Mesh) Heartbeat(ctx context.Context, n Node) (v1alpha1.Heartbeat, error) {
	answer := v1alpha1.Heartbeat{HeartbeatSeconds: seconds(m.opts.Heartbeat)}
	ready, err := m.recordHeartbeat(ctx, n.UID)
	if err != nil {
		return answer, err
	}
	if !ready {
		m.engine.Wake()
	}
	answer.Self, err = m.self(ctx, n)
	return answer, err
}

// recordHeartbeat is the transaction of a heartbeat. The removal of a node
// deletes its row, so in either order no heartbeat of a removed node is
// recorded.
func (m *Mesh) recordHeartbeat(ctx context.Context, uid string) (ready bool, err error) {
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
