package collect

import (
	"context"
	"fmt"
	"time"

	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/sqldb"
)

// transact is the review.Transactor. The collector sleeps as long as each
// transaction ran (50 % duty cycle). The time of the disk counts as sleep,
// because no push waits for it. On SQLite, where pushes need the same writer,
// reviews run one at a time, and sleep only if another writer had to wait.
func (c *Collector) transact(ctx context.Context, fn func(tx *countingTx) error) error {
	if !c.sql.postgres {
		c.turn.Lock()
		defer c.turn.Unlock()
	}
	begin, waited := time.Now(), c.db.Waited()
	took, err := c.transactNow(ctx, fn)
	if c.sql.postgres || c.db.Waited() > waited {
		disk := time.Since(begin) - took
		task.Sleep(ctx, took-disk)
	}
	return err
}

// transactNow runs a review and counts its results after the commit, or its
// failures. took is the time until other writers could continue.
func (c *Collector) transactNow(ctx context.Context, fn func(tx *countingTx) error) (took time.Duration, err error) {
	begin := time.Now()
	tx, err := c.db.Begin(ctx, sqldb.Ahead) // ahead: no push waits for its disk write
	if err != nil {
		return time.Since(begin), err
	}
	defer tx.Rollback() // no effect after a commit
	counting := &countingTx{Tx: tx}
	if err = fn(counting); err == nil {
		err = tx.Commit(ctx)
	}
	if took = time.Since(begin); err == nil {
		err = c.db.Flush()
	}
	if err != nil {
		c.metrics.count(took, counting.failures(ctx)...)
		return took, err
	}
	c.metrics.count(took, counting.reviews...)
	c.metrics.giveBack(counting.bytes...)
	for _, id := range counting.changed {
		c.options.Changed(id)
	}
	return took, nil
}

// write runs one statement in its own transaction.
func (c *Collector) write(ctx context.Context, what, statement string, args ...any) error {
	err := c.db.Transact(ctx, func(tx *sqldb.Tx) error { return tx.Exec(ctx, statement, args...) })
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
