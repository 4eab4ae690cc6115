package collect

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
)

// engines lists the engines that run.
func (c *Collector) engines() []*review.Engine {
	running := []*review.Engine{c.unlinks}
	if !c.options.KeepManifests {
		running = append(running, c.manifests, c.removed)
	}
	if !c.options.KeepBlobs {
		running = append(running, c.blobRows)
	}
	return running
}

// Run collects until ctx ends, and then returns nil.
func (c *Collector) Run(ctx context.Context) error {
	if !c.configured(ctx) {
		return nil
	}
	if c.options.Off {
		<-ctx.Done()
		return nil
	}
	tasks := []task.Task{
		c.repeat("remove abandoned uploads", 0, uploadPoll, c.RemoveAbandoned),
		c.repeat("forget what cannot be undeleted", uploadPoll, uploadPoll, c.ForgetDeleted),
		c.repeat("record the reclaimed bytes", reclaimedEvery, reclaimedEvery, c.recordReclaimed),
	}
	for _, e := range c.engines() {
		tasks = append(tasks, task.Task{Name: "registry-collector", Run: e.Run})
	}
	if every := c.options.SweepEvery; every > 0 {
		tasks = append(tasks, c.repeat("sweep the blob store", min(firstSweep, every), every, c.Sweep))
	}
	if err := task.Run(ctx, c.options.Logger, tasks...); err != nil {
		return err
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), reclaimedEvery)
	defer cancel()
	if _, err := c.recordReclaimed(ending); err != nil {
		c.options.Logger.Warn("registry collector", "step", "record the reclaimed bytes", "error", err)
	}
	return nil
}

// configureEvery is how long to wait after the settings could not be written.
const configureEvery = time.Second

// configured writes the settings, and tries again while the database does not answer: a server that
// starts during a failover must not end. It returns false when ctx ends first.
func (c *Collector) configured(ctx context.Context) bool {
	for {
		err := c.configure(ctx)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		c.options.Logger.Warn("registry collector", "step", "write its settings", "error", err)
		task.Sleep(ctx, configureEvery)
	}
}

// configure writes the settings that the triggers read.
func (c *Collector) configure(ctx context.Context) error {
	for _, event := range slices.Sorted(maps.Keys(c.options.ReviewAfter)) {
		if err := c.SetReviewAfter(ctx, event, c.options.ReviewAfter[event]); err != nil {
			return err
		}
	}
	return c.write(ctx, "set whether signatures are collected", setSetting, "signatures", !c.options.KeepSignatures)
}

// repeat is a task that runs a step periodically. It logs a failure, and the next run is the
// retry.
func (c *Collector) repeat(what string, first, every time.Duration, step func(context.Context) (int, error)) task.Task {
	return task.Loop("registry-collector", func(ctx context.Context) {
		for wait := first; task.Sleep(ctx, wait); wait = every {
			held, err := c.held(ctx)
			if err == nil && !held {
				_, err = step(ctx)
			}
			if err != nil && ctx.Err() == nil {
				c.options.Logger.Warn("registry collector", "step", what, "error", err)
			}
		}
	})
}

func (c *Collector) paused(ctx context.Context) (bool, error) {
	if c.options.Paused == nil {
		return false, nil
	}
	return c.options.Paused(ctx)
}

// held reports whether nothing may be collected now.
func (c *Collector) held(ctx context.Context) (bool, error) {
	paused, err := c.paused(ctx)
	return paused || c.options.Unready() != nil, err
}

// Turn is the result of one turn of each worker.
type Turn struct {
	Repositories, Manifests, Blobs, Unlinks review.Result

	Uploads int // abandoned uploads that were removed
}

// Idle reports whether there was nothing to do.
func (t Turn) Idle() bool {
	return t.Repositories.Claimed+t.Manifests.Claimed+t.Blobs.Claimed+t.Unlinks.Claimed+t.Uploads == 0
}

// RunOne lets each worker take one turn, in the order of removal. It is for
// tests, and for a run on demand.
func (c *Collector) RunOne(ctx context.Context) (Turn, error) {
	var t Turn
	paused, err := c.paused(ctx)
	if err == nil && !paused {
		err = c.options.Unready()
	}
	if err != nil || paused {
		return t, err
	}
	if !c.options.KeepManifests {
		if t.Repositories, err = c.removed.RunOne(ctx); err != nil {
			return t, err
		}
		if t.Manifests, err = c.manifests.RunOne(ctx); err != nil {
			return t, err
		}
	}
	if !c.options.KeepBlobs {
		if t.Blobs, err = c.blobRows.RunOne(ctx); err != nil {
			return t, err
		}
	}
	if t.Uploads, err = c.RemoveAbandoned(ctx); err != nil {
		return t, err
	}
	if t.Unlinks, err = c.unlinks.RunOne(ctx); err != nil {
		return t, err
	}
	_, err = c.recordReclaimed(ctx)
	return t, err
}

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
