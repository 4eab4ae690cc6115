package review

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/exeunt/exeunt/sqldb"
)

// reviewed is a task and its verdict.
type reviewed struct {
	task    Task
	verdict Verdict
}

// process reviews and settles the tasks of a batch. An error means that the
// database does not work or that ctx has ended; some tasks may be settled.
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
		settled, err = e.settle(ctx, tx, c.token, now, items)
		return err
	})
	if err != nil {
		return nil, err
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
