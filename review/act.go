package review

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/exeunt/exeunt/sqldb"
)

// reviewed is a task and its verdict.
type reviewed struct {
	task    Task
	verdict Verdict
}

// process reviews and settles the tasks of a batch. An error means that the
// database is unavailable or that ctx has ended; some tasks may be settled.
func (e *Engine) process(ctx context.Context, c batch, r *Result) error {
	waiting, err := e.act(ctx, c, r)
	switch {
	case err == nil:
		return e.runEffects(ctx, c.token, waiting, r)
	case ctx.Err() != nil:
		return ctx.Err() // not a failure of the tasks
	case len(c.tasks) == 1:
		item := reviewed{c.tasks[0], Failed(err)}
		return e.settleAlone(ctx, c.token, []reviewed{item}, r)
	}
	half := len(c.tasks) / 2
	if err := e.process(ctx, batch{c.token, c.tasks[:half]}, r); err != nil {
		return err
	}
	return e.process(ctx, batch{c.token, c.tasks[half:]}, r)
}

// act is the transaction that verifies, acts and settles. It returns the tasks
// that wait for their effect.
func (e *Engine) act(ctx context.Context, c batch, r *Result) (waiting []reviewed, err error) {
	defer e.metrics.time(stepReview)()
	ctx, cancel := context.WithTimeout(ctx, e.queue.Lease)
	defer cancel()
	var items []reviewed
	var settled map[string]bool
	err = e.transact(ctx, func(tx Tx, review reviewFunc) error {
		items, settled = nil, nil // fn may be called again
		held, err := e.hold(ctx, tx, c)
		if err != nil || len(held) == 0 {
			return err
		}
		now := e.options.Now()
		verdicts, err := e.reviewTraced(ctx, tx, review, now, held)
		if err != nil {
			return err
		}
		for i, task := range held {
			items = append(items, reviewed{task, verdicts[i]})
		}
		if !e.queue.Outside {
			settled, err = e.settle(ctx, tx, c.token, now, items)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if e.queue.Outside {
		return items, nil
	}
	r.Left += len(c.tasks) - len(items)
	return e.tally(items, settled, r), nil
}

// review calls the reviewer. A panic becomes an error of the batch; halving the
// batch then finds the one task that panics.
func (e *Engine) review(ctx context.Context, review reviewFunc, now time.Time, tasks []Task) (verdicts []Verdict, err error) {
	defer func() {
		if p := recover(); p != nil {
			e.options.Logger.Error("reviewer panicked", "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	verdicts, err = review(ctx, now, slices.Clone(tasks))
	if err == nil && len(verdicts) != len(tasks) {
		err = fmt.Errorf("the review of %d tasks came to %d verdicts", len(tasks), len(verdicts))
	}
	return verdicts, err
}

// tally counts the committed verdicts and returns the tasks that wait for their
// effect. A task whose row was not settled stays in the queue; its next review
// returns the effect again.
func (e *Engine) tally(items []reviewed, settled map[string]bool, r *Result) (waiting []reviewed) {
	for _, item := range items {
		v := item.verdict
		if v.effect != nil && settled[item.task.Key] {
			waiting = append(waiting, item)
			continue
		}
		if v.acted {
			r.Acted++
		}
		switch {
		case !settled[item.task.Key]:
			r.Left++
		case v.outcome == done:
			r.Done++
		case v.outcome == again:
			r.Postponed++
		default:
			r.Failed++
			e.metrics.failures.WithLabelValues(item.task.Event).Inc()
			e.options.Logger.Warn("review failed", "key", item.task.Key, "event", item.task.Event,
				"failures", item.task.Count+1, "error", sqldb.Advised(v.reason()))
		}
	}
	return waiting
}

// runEffects runs effects and settles their tasks. The transaction before it has
// committed and left the rows claimed, so after a crash in runEffects the rows are
// reviewed again when the lease ends. If it settled first, a crash would lose the
// effects.
func (e *Engine) runEffects(ctx context.Context, token string, items []reviewed, r *Result) error {
	if len(items) == 0 {
		return nil
	}
	verdicts := e.runAll(ctx, items)
	var ended []reviewed
	for i, item := range items {
		v := verdicts[i]
		if errors.Is(v.err, errNotRun) || (v.outcome == failed && ctx.Err() != nil) {
			r.Left++ // interrupted: not a failure of the task
			continue
		}
		ended = append(ended, reviewed{item.task, v})
	}
	// Effects that ran are recorded even if ctx has ended.
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.queue.Lease)
	defer cancel()
	if err := e.settleAlone(settling, token, ended, r); err != nil {
		return err
	}
	return ctx.Err()
}

var errNotRun = errors.New("effect not run")

// errTasksFailed: the rows have the errors.
var errTasksFailed = errors.New("reviews failed")

// runAll runs the effects, up to Queue.Effects at once, while the lease lasts, and
// returns their verdicts.
func (e *Engine) runAll(ctx context.Context, items []reviewed) []Verdict {
	ctx, cancel := context.WithTimeout(ctx, e.queue.Lease)
	defer cancel()
	verdicts := make([]Verdict, len(items))
	slots := make(chan struct{}, e.queue.Effects)
	var running sync.WaitGroup
	for i, item := range items {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			verdicts[i] = e.runEffect(ctx, item)
		})
	}
	running.Wait()
	return verdicts
}

func (e *Engine) runEffect(ctx context.Context, item reviewed) (v Verdict) {
	if ctx.Err() != nil {
		return Failed(errNotRun)
	}
	defer e.metrics.time(stepEffect)()
	defer func() {
		if p := recover(); p != nil {
			e.options.Logger.Error("effect panicked", "key", item.task.Key, "panic", p, "stack", string(debug.Stack()))
			v = Failed(fmt.Errorf("effect: panic: %v", p))
		}
	}()
	return item.verdict.effect(ctx)
}

// maxError bounds last_error, in bytes.
const maxError = 1000

// settle writes the verdicts of the rows that still carry the token, in one round
// trip, and returns their keys. Rows that wait for an effect stay, with a new
// lease.
func (e *Engine) settle(ctx context.Context, tx Tx, token string, now time.Time, items []reviewed) (map[string]bool, error) {
	settled := make(map[string]bool, len(items))
	row := collect(settled)
	var b sqldb.Batch
	e.lock(&b, token, items)
	var removed, waiting []string
	postponed := map[int64][]string{} // by the new review_after
	for _, item := range items {
		key, v := item.task.Key, item.verdict
		switch {
		case v.effect != nil:
			waiting = append(waiting, key)
		case v.outcome == done:
			removed = append(removed, key)
		case v.outcome == again:
			at := now.Add(v.after).UnixMilli()
			postponed[at] = append(postponed[at], key)
		default:
			delay := e.queue.Backoff.Delay(item.task.Count+1, e.options.Random())
			b.Query(row, e.sql.fail, key, token, now.Add(delay).UnixMilli(), errorText(v.reason()))
		}
	}
	if len(removed) > 0 {
		b.Query(row, e.sql.remove, sqldb.List(e.db.Engine(), removed), token)
	}
	if len(waiting) > 0 {
		b.Query(row, e.sql.extend, sqldb.List(e.db.Engine(), waiting), token, now.Add(e.queue.Lease).UnixMilli())
	}
	for _, at := range slices.Sorted(maps.Keys(postponed)) {
		b.Query(row, e.sql.postpone, sqldb.List(e.db.Engine(), postponed[at]), token, at)
	}
	if err := tx.Send(ctx, &b); err != nil {
		return nil, fmt.Errorf("settle %s reviews: %w", e.queue.Name, err)
	}
	return settled, nil
}

// lock locks the rows in key order, because the statements of settle lock them in
// other orders.
func (e *Engine) lock(b *sqldb.Batch, token string, items []reviewed) {
	if e.sql.lock == "" {
		return
	}
	keys := make([]string, len(items))
	for i := range items {
		keys[i] = items[i].task.Key
	}
	slices.Sort(keys)
	b.Exec(e.sql.lock, keys, token)
}

// settleAlone settles in a transaction of its own.
func (e *Engine) settleAlone(ctx context.Context, token string, items []reviewed, r *Result) error {
	if len(items) == 0 {
		return nil
	}
	var settled map[string]bool
	err := e.withoutSync(ctx, func(tx Tx) (err error) {
		settled, err = e.settle(ctx, tx, token, e.options.Now(), items)
		return err
	})
	if err != nil {
		return err
	}
	e.tally(items, settled, r)
	return nil
}

// errorText is the text for last_error: valid on both engines, at most maxError
// bytes, cut between two characters.
func errorText(err error) string {
	text := strings.ToValidUTF8(strings.ReplaceAll(err.Error(), "\x00", ""), "\uFFFD")
	if len(text) <= maxError {
		return text
	}
	end := maxError - len("…")
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}
