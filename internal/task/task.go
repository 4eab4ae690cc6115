// Package task runs what a server does in the background. A task that panics begins again
// after a pause, with a line in the log and a metric: one defect does not end the others.
package task

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// Task works until its context ends. It must be able to begin again after a panic.
type Task struct {
	Name string
	Run  func(context.Context) error
}

// Loop is a task that cannot fail.
func Loop(name string, run func(context.Context)) Task {
	return Task{name, func(ctx context.Context) error { run(ctx); return nil }}
}

// Restarts counts the panics of this process by task.
var Restarts = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "exeunt_task_restarts_total", Help: "Background tasks of this replica that panicked and began again. Each is a defect: the log has its stack.",
}, []string{"task"})

// The pause before a task begins again doubles with each panic, up to the longest. After a time without
// one it is short again.
const (
	firstPause   = time.Second
	longestPause = time.Minute
	calm         = 10 * time.Minute
)

// Run runs tasks until the context ends or one of them fails. Then all of them end, and it returns
// the first error.
func Run(ctx context.Context, log *slog.Logger, tasks ...Task) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, t := range tasks {
		group.Go(func() error { return t.keep(ctx, log) })
	}
	return group.Wait()
}

// keep runs the task, and again after each panic.
func (t Task) keep(ctx context.Context, log *slog.Logger) error {
	for pause := firstPause; ; {
		began := time.Now()
		err := Catch(func() error { return t.Run(ctx) })()
		panicked := (*Panic)(nil)
		if !errors.As(err, &panicked) {
			return err
		}
		if time.Since(began) >= calm {
			pause = firstPause
		}
		Restarts.WithLabelValues(t.Name).Inc()
		log.Error("background task panicked and will begin again", "task", t.Name, "panic", panicked.Value, "retry", pause, "stack", string(panicked.Stack))
		if !Sleep(ctx, pause) {
			return nil
		}
		pause = min(2*pause, longestPause)
	}
}

// Panic is a panic as an error.
type Panic struct {
	Value any
	Stack []byte
}

func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Catch returns fn with its panics as errors of type *Panic, for goroutines that a task begins.
func Catch(fn func() error) func() error {
	return func() (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = &Panic{p, debug.Stack()}
			}
		}()
		return fn()
	}
}

// Sleep waits, and reports whether the time passed before the context ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}
