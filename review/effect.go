package review

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
)

// runEffects runs effects and settles their tasks. The transaction before it
// has committed and left the rows claimed, so a crash anywhere in here leaves
// rows that are reviewed again when the lease ends. Settling first would forget
// them.
func (e *Engine) runEffects(ctx context.Context, token string, items []reviewed, r *Result) error {
	if len(items) == 0 {
		return nil
	}
	errs := e.runAll(ctx, items)
	var ended []reviewed
	for i, item := range items {
		err := errs[i]
		if errors.Is(err, errNotRun) || (err != nil && ctx.Err() != nil) {
			r.Left++ // interrupted: nobody's failure
			continue
		}
		item.verdict.effect = nil
		if err != nil {
			item.verdict = Failed(fmt.Errorf("effect: %w", err))
		}
		ended = append(ended, item)
	}
	// What ran is recorded also when ctx has ended meanwhile.
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.queue.Lease)
	defer cancel()
	if err := e.settleApart(settling, token, ended, r); err != nil {
		return err
	}
	return ctx.Err()
}

var errNotRun = errors.New("effect not run")

// runAll runs the effects, a few at once, while the lease lasts.
func (e *Engine) runAll(ctx context.Context, items []reviewed) []error {
	ctx, cancel := context.WithTimeout(ctx, e.queue.Lease)
	defer cancel()
	errs := make([]error, len(items))
	slots := make(chan struct{}, e.queue.Effects)
	var running sync.WaitGroup
	for i, item := range items {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			errs[i] = e.runEffect(ctx, item)
		})
	}
	running.Wait()
	return errs
}

func (e *Engine) runEffect(ctx context.Context, item reviewed) (err error) {
	if ctx.Err() != nil {
		return errNotRun
	}
	defer e.metrics.time(stepEffect)()
	defer func() {
		if p := recover(); p != nil {
			e.options.Logger.Error("effect panicked", "key", item.task.Key, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return item.verdict.effect(ctx)
}
