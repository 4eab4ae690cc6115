package review

import (
	"context"
	"database/sql"
	"errors"
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

// Effect does something outside the database. It must be idempotent: it may run
// again after it has succeeded, because the process can die before it records
// that. It runs without a lock, so it must be correct whatever has happened to its
// subject since the review: use a name that is never reused for what it removes.
type Effect func(ctx context.Context) error

// Verdict is the result of a review. The zero value is a failure: use the
// functions to make one.
type Verdict struct {
	outcome outcome
	acted   bool
	after   time.Duration
	err     error
	effect  func(context.Context) Verdict // runs the effects and returns the final verdict; nil means no effects
}

type outcome int

const (
	failed outcome = iota
	done
	again
)

var (
	errNoVerdict = errors.New("the review returned no verdict")
	errNoReason  = errors.New("the review failed and gave no reason")
	errTwice     = errors.New("a verdict from Outside must not have an effect")
)

// Kept says that there is nothing to do, or no subject. The task is done.
func Kept() Verdict { return Verdict{outcome: done} }

// Acted says that the review acted on the subject. The task is done.
func Acted() Verdict { return Verdict{outcome: done, acted: true} }

// Again says that the task must be reviewed again after a time, which may be zero.
// It is a success: it resets the count of failures.
func Again(after time.Duration) Verdict { return Verdict{outcome: again, after: max(after, 0)} }

// Progressed is Again for a review that acted.
func Progressed(after time.Duration) Verdict {
	v := Again(after)
	v.acted = true
	return v
}

// Failed says that this task failed, and not the others of its batch. The
// transaction commits, so Review must not have written anything for this task. If
// a statement fails, Review must return the error instead.
func Failed(err error) Verdict {
	if err == nil {
		err = errNoReason
	}
	return Verdict{err: err}
}

// Then adds an effect that runs after the commit and after the effects added
// before. The task is settled when all effects have succeeded, and fails with the
// first that fails. A failed verdict has no effects.
//
// When the process dies between commit and effect, the task is reviewed again: the
// Reviewer must then return the same effect, although the database part is done.
func (v Verdict) Then(effect Effect) Verdict {
	if v.outcome == failed || effect == nil {
		return v
	}
	first := v.effect
	settled := v
	settled.effect = nil
	v.effect = func(ctx context.Context) Verdict {
		result := settled
		if first != nil {
			if result = first(ctx); result.outcome == failed {
				return result
			}
		}
		if err := effect(ctx); err != nil {
			return Failed(fmt.Errorf("effect: %w", err))
		}
		return result
	}
	return v
}

// Outside lets fn decide the verdict. fn runs like an Effect, after the commit and
// without a lock: for a review that depends on a system outside the database. fn
// must obey the rules of an Effect.
func Outside(fn func(ctx context.Context) Verdict) Verdict {
	return Verdict{outcome: again, effect: func(ctx context.Context) Verdict {
		v := fn(ctx)
		if v.effect != nil {
			return Failed(errTwice)
		}
		return v
	}}
}

// reason is the error of a failure.
func (v Verdict) reason() error {
	if v.err == nil {
		return errNoVerdict
	}
	return v.err
}
