package collect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/exeunt/exeunt/registry/blobstore"
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
			tx.note(task, outcomeKept)
			continue
		}
		if held[i] {
			verdicts[i] = review.Again(backupRecheck)
			tx.note(task, outcomePostponed)
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

// reclaimedEvery is how often a replica writes how many bytes it removed. They are
// counted after the removal, so a crash can lose the count of this time, and of no more.
const reclaimedEvery = 5 * time.Second

// recordReclaimed adds the bytes that this replica removed to those of the day.
func (c *Collector) recordReclaimed(ctx context.Context) (int, error) {
	n := c.reclaimed.Swap(0)
	if n == 0 {
		return 0, nil
	}
	if err := c.write(ctx, "record the reclaimed bytes", addReclaimed, day(c.options.Now()), n); err != nil {
		c.reclaimed.Add(n)
		return 0, err
	}
	return 1, nil
}

// day numbers the days since 1970, UTC.
func day(t time.Time) int64 { return t.Unix() / (24 * 60 * 60) }

// stepRows bounds the rows that one transaction of the collector's own steps
// changes.
const stepRows = 200

// RemoveAbandoned removes the uploads that were idle for too long, and returns
// how many. A trigger queues their bytes for the unlinker. The index on the last
// activity serves as their queue: a queue table would cost two more writes per
// upload.
func (c *Collector) RemoveAbandoned(ctx context.Context) (removed int, err error) {
	for {
		now := c.options.Now()
		cutoff := now.Add(-c.options.UploadExpiry).UnixMilli()
		var one int64
		found, err := c.db.Row(ctx, isAbandoned, []any{cutoff, now.UnixMilli()}, &one)
		if err != nil || !found {
			return removed, wrap("look for abandoned uploads", err)
		}
		n := 0
		var b sqldb.Batch
		b.Query(func(row sqldb.Row) error { n++; return row.Scan(new(string)) },
			c.sql.removeAbandoned, cutoff, now.UnixMilli(), stepRows)
		if err := c.transact(ctx, func(tx *countingTx) error { n = 0; return tx.Send(ctx, &b) }); err != nil {
			return removed, wrap("remove abandoned uploads", err)
		}
		removed += n
		c.metrics.uploads.Add(float64(n))
		if n < stepRows {
			return removed, nil
		}
	}
}

// removeSome runs a statement that removes rows and returns one number for each.
// It returns the number of rows.
func (c *Collector) removeSome(ctx context.Context, statement string, args ...any) (n int, err error) {
	err = c.transact(ctx, func(tx *countingTx) error {
		n = 0
		return sqldb.Each(ctx, tx, func(row sqldb.Row) error { n++; return row.Scan(new(int64)) }, statement, args...)
	})
	return n, err
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Sweep queues for the unlinker the paths of the blob store that no row names
// and that were last written before uploads expire. It returns how many. There
// should be none, because a row is written before the first byte. Sweep is the
// safety net for a database restored from a backup, and for bugs.
func (c *Collector) Sweep(ctx context.Context) (found int, err error) {
	walker, ok := c.blobs.(blobstore.Walker)
	if !ok {
		return 0, errors.New("sweep the blob store: it cannot list its paths")
	}
	cutoff := c.options.Now().Add(-c.options.UploadExpiry)
	var batch []sweptPath
	err = walker.Walk(ctx, func(path string, size int64, written time.Time) error {
		if written.After(cutoff) {
			return nil
		}
		if batch = append(batch, sweptPath{path, size}); len(batch) < stepRows {
			return nil
		}
		n, err := c.enqueueUnknown(ctx, batch)
		found += n
		batch = batch[:0]
		return err
	})
	if err == nil {
		var n int
		n, err = c.enqueueUnknown(ctx, batch)
		found += n
	}
	return found, wrap("sweep the blob store", err)
}

type sweptPath struct {
	path string
	size int64
}

// enqueueUnknown queues those of some paths that no row names.
func (c *Collector) enqueueUnknown(ctx context.Context, batch []sweptPath) (n int, err error) {
	unknown := batch[:0:0]
	for _, p := range batch { // usually all paths are known, and nothing is written
		var known bool
		var size int64
		if _, err := c.db.Row(ctx, pathKnown, []any{p.path}, &known, &size); err != nil {
			return 0, err
		}
		if !known {
			unknown = append(unknown, p)
		}
	}
	if len(unknown) == 0 {
		return 0, nil
	}
	now := c.options.Now().UnixMilli()
	err = c.transact(ctx, func(tx *countingTx) error {
		n = 0
		var b sqldb.Batch
		for _, p := range unknown {
			b.Query(func(row sqldb.Row) error { n++; return row.Scan(new(string)) }, enqueueUnknown, p.path, p.size, now)
		}
		return tx.Send(ctx, &b)
	})
	return n, err
}
