package review

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
)

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
