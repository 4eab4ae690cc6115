package review

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/exeunt/exeunt/sqldb"
)

// batch is tasks that were claimed together.
type batch struct {
	token string
	tasks []Task
}

// releaseTimeout bounds release, which runs after the context has ended.
const releaseTimeout = 5 * time.Second

// next returns when the first task can be claimed: a time up to now if one can be
// claimed now, the zero time if the queue is empty. It only reads, so that an idle
// engine never takes SQLite's only writer. It writes only if all due tasks are
// claimed, and some by a process that has ended.
func (e *Engine) next(ctx context.Context, now time.Time) (time.Time, error) {
	var at, lease sql.NullInt64
	if _, err := e.db.Row(ctx, e.sql.next, []any{now.UnixMilli()}, &at); err != nil {
		return time.Time{}, fmt.Errorf("next %s review: %w", e.queue.Name, err)
	}
	if at.Valid && at.Int64 <= now.UnixMilli() {
		return time.UnixMilli(at.Int64), nil
	}
	if _, err := e.db.Row(ctx, e.sql.nextLease, []any{now.UnixMilli()}, &lease); err != nil {
		return time.Time{}, fmt.Errorf("next %s review: %w", e.queue.Name, err)
	}
	if lease.Valid {
		if free, err := e.unblock(ctx, now); free || err != nil {
			return now, err
		}
	}
	if lease.Valid && (!at.Valid || lease.Int64 < at.Int64) {
		at = lease
	}
	return unixMilli(at), nil
}

// claim claims due tasks. It returns them in the order in which they became due.
func (e *Engine) claim(ctx context.Context, now time.Time) (batch, error) {
	defer e.metrics.time(stepClaim)()
	c := batch{token: e.db.Token()}
	var b sqldb.Batch
	b.Query(func(row sqldb.Row) error {
		task, err := scan(row)
		c.tasks = append(c.tasks, task)
		return err
	}, e.sql.claim, c.token, now.Add(e.queue.Lease).UnixMilli(), now.UnixMilli(), e.queue.Batch)
	err := e.withoutSync(ctx, func(tx Tx) error { return tx.Send(ctx, &b) })
	if err != nil {
		return batch{}, fmt.Errorf("claim %s reviews: %w", e.queue.Name, err)
	}
	slices.SortFunc(c.tasks, func(x, y Task) int {
		return cmp.Or(x.Due.Compare(y.Due), cmp.Compare(x.Key, y.Key))
	})
	return c, nil
}

// release gives up the claims that were not settled, so that other engines need
// not wait for the lease to end. If it fails, they wait for the lease.
func (e *Engine) release(ctx context.Context, c batch) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	var b sqldb.Batch
	b.Exec(e.sql.release, sqldb.List(e.db.Engine(), c.keys()), c.token)
	err := e.withoutSync(ctx, func(tx Tx) error { return tx.Send(ctx, &b) })
	if err != nil {
		e.options.Logger.Warn("reviews not released, their lease has to end", "error", err)
	}
}

// hold returns the tasks that still carry our token, and locks them until the
// transaction ends. Without one it returns all: their effects come next, and a token may go meanwhile anyway.
func (e *Engine) hold(ctx context.Context, tx Tx, c batch) ([]Task, error) {
	if e.queue.Outside {
		return c.tasks, nil
	}
	ours := make(map[string]bool, len(c.tasks))
	if err := sqldb.Each(ctx, tx, collect(ours), e.sql.hold, sqldb.List(e.db.Engine(), c.keys()), c.token); err != nil {
		return nil, fmt.Errorf("hold %s reviews: %w", e.queue.Name, err)
	}
	held := make([]Task, 0, len(c.tasks))
	for _, task := range c.tasks {
		if ours[task.Key] {
			held = append(held, task)
		}
	}
	return held, nil
}

// collect returns a row function that adds keys to a set.
func collect(set map[string]bool) func(sqldb.Row) error {
	return func(row sqldb.Row) error {
		var key string
		if err := row.Scan(&key); err != nil {
			return err
		}
		set[key] = true
		return nil
	}
}

func (c batch) keys() []string {
	keys := make([]string, len(c.tasks))
	for i := range c.tasks {
		keys[i] = c.tasks[i].Key
	}
	return keys
}

// scan reads a row of claim or get.
func scan(row sqldb.Row) (Task, error) {
	var task Task
	var count, created, due, claimed int64
	if err := row.Scan(&task.Key, &task.Event, &count, &created, &due, &task.LastError, &claimed, &task.trace); err != nil {
		return Task{}, err
	}
	task.Count = int(count)
	task.Created, task.Due = time.UnixMilli(created), time.UnixMilli(due)
	if claimed != 0 {
		task.Claimed = time.UnixMilli(claimed)
	}
	return task, nil
}

// unixMilli converts milliseconds to a time; NULL to the zero time.
func unixMilli(ms sql.NullInt64) time.Time {
	if !ms.Valid {
		return time.Time{}
	}
	return time.UnixMilli(ms.Int64)
}

// takeOverEvery is how often at most an engine that waits for the claims of other
// processes checks whether those processes are alive.
const takeOverEvery = time.Second

// TakeOver clears the claims of processes that have ended (sqldb.DB.Gone), so that
// engines do not wait for their leases. It returns the number of claims. If such a
// process is alive after all, its token is gone when it settles, as if its lease
// had ended.
func (e *Engine) TakeOver(ctx context.Context) (claims int, err error) {
	tokens, err := sqldb.Column[string](ctx, e.db, e.sql.tokens, e.options.Now().UnixMilli())
	if err != nil {
		return 0, fmt.Errorf("read claims of %s reviews: %w", e.queue.Name, err)
	}
	gone, err := e.db.Gone(ctx, tokens)
	if err != nil || len(gone) == 0 {
		return 0, err
	}
	err = e.withoutSync(ctx, func(tx Tx) error {
		claims = 0
		var b sqldb.Batch
		for _, token := range gone {
			b.Query(func(row sqldb.Row) error { claims++; return row.Scan(new(string)) }, e.sql.disown, token)
		}
		return tx.Send(ctx, &b)
	})
	if err != nil {
		return 0, fmt.Errorf("take %s reviews over: %w", e.queue.Name, err)
	}
	if claims == 0 {
		return 0, nil // another loop was first
	}
	e.options.Logger.Info("claims of a process that is gone were taken over", "claims", claims)
	return claims, nil
}

// takeOverAtStart takes over the claims of the previous process.
func (e *Engine) takeOverAtStart(ctx context.Context) {
	if _, err := e.TakeOver(ctx); err != nil && ctx.Err() == nil {
		e.options.Logger.Warn("claims of the process before are left until their lease ends", "error", err)
	}
}

// unblock takes over the due tasks of processes that have ended, and reports
// whether there are tasks to claim now. On SQLite no other process can hold
// claims.
func (e *Engine) unblock(ctx context.Context, now time.Time) (bool, error) {
	last := e.tookOver.Load()
	if e.db.Engine() != sqldb.Postgres || now.Sub(time.UnixMilli(last)) < takeOverEvery || !e.tookOver.CompareAndSwap(last, now.UnixMilli()) {
		return false, nil
	}
	claims, err := e.TakeOver(ctx)
	return claims > 0, err
}
