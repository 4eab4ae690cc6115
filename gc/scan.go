package gc

import (
	"context"
	"fmt"

	"github.com/exeunt/exeunt/sqldb"
)

// scanBatch bounds the reviews that a scan adds in one transaction.
const scanBatch = 500

// Scan puts under review every owner that is referred to and does not exist,
// and every DELETING object that waits for the collector. The triggers have
// done so already; this is the safety net, at start and on demand. It returns
// how many reviews it added.
//
// It reads a snapshot and holds no lock meanwhile, so that writes need not wait
// for a long scan. What becomes reviewable later has its trigger; and a uid
// that is not there never comes back.
func (c *Collector) Scan(ctx context.Context) (added int, err error) {
	rows, err := c.db.Query(ctx, scanFind)
	if err != nil {
		return 0, fmt.Errorf("scan objects: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var found []string
	for rows.Next() {
		var uid string
		if err := rows.Scan(&uid); err != nil {
			return added, fmt.Errorf("scan objects: %w", err)
		}
		if found = append(found, uid); len(found) < scanBatch {
			continue
		}
		if err := c.enqueueFound(ctx, found, &added); err != nil {
			return added, err
		}
		found = found[:0]
	}
	if err := rows.Err(); err != nil {
		return added, fmt.Errorf("scan objects: %w", err)
	}
	return added, c.enqueueFound(ctx, found, &added)
}

// enqueueFound adds reviews, where there are none, in a transaction of its own.
func (c *Collector) enqueueFound(ctx context.Context, found []string, added *int) error {
	if len(found) == 0 {
		return nil
	}
	tx, err := c.db.Begin(ctx)
	if err != nil {
		return fmt.Errorf("scan objects: %w", err)
	}
	defer tx.Rollback() // does nothing after a commit
	n := 0
	var b sqldb.Batch
	for _, uid := range found {
		b.Query(func(row sqldb.Row) error {
			n++
			return row.Scan(new(string))
		}, scanEnqueue, uid, c.opts.Now().UnixMilli())
	}
	if err := tx.Send(ctx, &b); err != nil {
		return fmt.Errorf("scan objects: %w", err)
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("scan objects: %w", err)
	}
	*added += n
	if n > 0 {
		c.engine.Wake()
	}
	return nil
}
