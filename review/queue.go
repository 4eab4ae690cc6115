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
