package collect

import (
	"context"
	"fmt"
	"time"

	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
)

// unlinker removes bytes that no row names. The row was deleted in the
// transaction that queued the path, and a path is never reused. So the removal
// is idempotent and safe at any time. If the process dies in between, the path
// is still in the queue.
type unlinker struct{ c *Collector }

// Review is review.Reviewer. As a safety check it asks again whether a row names
// the path. While a backup runs it removes nothing: the copy of the database may name
// the path.
func (u *unlinker) Review(ctx context.Context, tx *countingTx, _ time.Time, tasks []review.Task) ([]review.Verdict, error) {
	tx.begin(workerUnlink, tasks)
	known, held := make([]bool, len(tasks)), make([]bool, len(tasks))
	sizes := make([]int64, len(tasks))
	var b sqldb.Batch
	for i, task := range tasks {
		b.Query(func(row sqldb.Row) error { return row.Scan(&known[i], &sizes[i], &held[i]) }, pathToUnlink, task.Key)
	}
	if err := tx.Send(ctx, &b); err != nil {
		return nil, fmt.Errorf("look up paths: %w", err)
	}
	verdicts := make([]review.Verdict, len(tasks))
	for i, task := range tasks {
		if known[i] {
			verdicts[i] = review.Kept()
			tx.note(workerUnlink, task.Event, outcomeKept)
			continue
		}
		if held[i] {
			verdicts[i] = review.Again(backupRecheck)
			tx.note(workerUnlink, task.Event, outcomePostponed)
			continue
		}
		verdicts[i] = review.Acted().Then(u.remove(task, sizes[i]))
	}
	return verdicts, nil
}

// remove is the effect. It counts the bytes here, because a removal cannot be
// rolled back.
func (u *unlinker) remove(task review.Task, size int64) review.Effect {
	return func(ctx context.Context) error {
		begin := time.Now()
		limited, cancel := context.WithTimeout(ctx, u.c.options.RemoveTimeout)
		defer cancel()
		if err := u.c.blobs.Remove(limited, task.Key); err != nil {
			if limited.Err() != nil && ctx.Err() == nil {
				u.c.metrics.timeouts.Inc()
				err = fmt.Errorf("the blob store did not remove the bytes within %s: %w", u.c.options.RemoveTimeout, err)
			}
			u.c.metrics.count(time.Since(begin), counted{workerUnlink, task.Event, outcomeFailed})
			return err
		}
		u.c.metrics.count(time.Since(begin), counted{workerUnlink, task.Event, outcomeDeleted})
		u.c.metrics.giveBack(recovered{workerUnlink, task.Event, size})
		u.c.reclaimed.Add(size)
		return nil
	}
}
