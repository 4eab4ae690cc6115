package review

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/exeunt/exeunt/sqldb"
)

// Stats is the state of a queue.
type Stats struct {
	Depth   int       `json:"depth"`           // tasks
	Overdue int       `json:"overdue"`         // tasks that are due
	Claimed int       `json:"claimed"`         // tasks under review
	Failing int       `json:"failing"`         // tasks whose last review failed
	Oldest  time.Time `json:"oldest,omitzero"` // when the oldest task was enqueued
	Due     time.Time `json:"due,omitzero"`    // when the first task is, or was, due
}

// Name is the name of the queue, as in its metrics.
func (e *Engine) Name() string { return e.queue.Name }

// Enqueue adds to a batch the statement that enqueues a task. A task that is in
// the queue becomes due at the earlier of the two times; the package comment says
// which columns it keeps. Call Wake after the commit.
func (e *Engine) Enqueue(b *sqldb.Batch, key, event string, due time.Time) {
	b.Exec(e.sql.enqueue, key, due.UnixMilli(), event, e.options.Now().UnixMilli())
}

// Get reads a task, and reports whether it is in the queue.
func (e *Engine) Get(ctx context.Context, key string) (Task, bool, error) {
	var task Task
	found := false
	err := sqldb.Each(ctx, e.db, func(row sqldb.Row) (err error) {
		found = true
		task, err = scan(row)
		return err
	}, e.sql.get, key)
	if err != nil {
		return Task{}, false, fmt.Errorf("get %s review %q: %w", e.queue.Name, key, err)
	}
	return task, found, nil
}

// Stats counts the queue. It reads the whole table.
func (e *Engine) Stats(ctx context.Context) (Stats, error) {
	var s Stats
	var oldest, due sql.NullInt64
	_, err := e.db.Row(ctx, e.sql.stats, []any{e.options.Now().UnixMilli()},
		&s.Depth, &s.Overdue, &s.Failing, &s.Claimed, &oldest, &due)
	if err != nil {
		return Stats{}, fmt.Errorf("count %s reviews: %w", e.queue.Name, err)
	}
	s.Oldest, s.Due = unixMilli(oldest), unixMilli(due)
	return s, nil
}

// Backoff says how long a task waits after failures: the wait doubles with each
// failure, up to a cap. Zero fields have defaults.
type Backoff struct {
	Base time.Duration // after the first failure; default 1 second
	Cap  time.Duration // default 5 minutes, or Base when that is longer
}

func (b *Backoff) complete() error {
	if b.Base < 0 || b.Cap < 0 {
		return fmt.Errorf("backoff from %v to %v is negative", b.Base, b.Cap)
	}
	setDefault(&b.Base, time.Second)
	setDefault(&b.Cap, max(5*time.Minute, b.Base))
	if b.Cap < b.Base {
		return fmt.Errorf("backoff starts at %v, above its cap of %v", b.Base, b.Cap)
	}
	return nil
}

// Delay is the wait after a number of failures in a row. random, from 0 to 1,
// subtracts up to half of it (jitter), so that tasks that failed together are not
// retried together. The result never exceeds the cap.
func (b Backoff) Delay(failures int, random float64) time.Duration {
	d := b.Base
	for i := 1; i < failures && d < b.Cap; i++ {
		if d > b.Cap/2 { // doubling could overflow
			d = b.Cap
			break
		}
		d *= 2
	}
	d = min(d, b.Cap)
	return d - time.Duration(min(max(random, 0), 1)*float64(d/2))
}
