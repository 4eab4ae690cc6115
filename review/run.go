package review

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/exeunt/exeunt/internal/tracing"
	"github.com/exeunt/exeunt/sqldb"
)

// Result is the result of one turn. Claimed = Done + Postponed + Failed + Left,
// unless there was an error.
type Result struct {
	Paused    bool // no task was claimed
	Claimed   int
	Done      int // left the queue
	Postponed int // to be reviewed again
	Failed    int // to be reviewed again, after a backoff
	Left      int // still in the queue: enqueued again during the review, taken over, or not reached
	Acted     int // reviews that acted
	// Next is when the next task can be claimed, if none was claimed. Zero means that the
	// queue is empty.
	Next time.Time
}

const (
	// pausedPoll is how often a paused engine checks whether it may go on.
	pausedPoll = 500 * time.Millisecond
	// busyPoll is the wait when other engines have locked all due tasks.
	busyPoll = 50 * time.Millisecond
)

// runBackoff is for turns that fail as a whole: the database is unavailable.
var runBackoff = Backoff{Base: 200 * time.Millisecond, Cap: 30 * time.Second}

// RunOne is one turn: it claims at most one batch of tasks that are due,
// reviews and settles them, and returns. It returns an error if the database does
// not work, but not if a task fails. When ctx ends, it releases the tasks that
// were not settled.
func (e *Engine) RunOne(ctx context.Context) (Result, error) {
	var r Result
	paused, err := e.options.Paused(ctx)
	if err != nil {
		return r, fmt.Errorf("ask whether %s reviews are paused: %w", e.queue.Name, err)
	}
	if paused {
		return Result{Paused: true}, nil
	}
	now := e.options.Now()
	more := e.full.Load() // then claim without calling next
	if !more {
		if r.Next, err = e.next(ctx, now); err != nil || r.Next.IsZero() || r.Next.After(now) {
			return r, err
		}
	}
	c, err := e.claim(ctx, now)
	e.full.Store(len(c.tasks) == e.queue.Batch)
	if err == nil && len(c.tasks) == 0 && more {
		return e.RunOne(ctx) // nothing more was due: call next
	}
	if err != nil || len(c.tasks) == 0 {
		return r, err
	}
	r = Result{Claimed: len(c.tasks)}
	err = e.processTraced(ctx, c, &r)
	e.metrics.count(r)
	if err != nil {
		e.release(ctx, c)
	}
	return r, err
}

// Run repeats RunOne until ctx ends, and then returns nil. When there is nothing to
// do it sleeps until the next task is due, Wake is called, or Queue.Idle has
// passed. When the database is unavailable it retries with a backoff. At its start
// it takes over the claims of processes that have ended.
func (e *Engine) Run(ctx context.Context) error {
	e.takeOverAtStart(ctx)
	for failures := 0; ; {
		begin := e.options.Now()
		r, err := e.RunOne(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			failures++
			e.metrics.turnErrors.Inc()
			e.options.Logger.Error("review queue unavailable", "failures", failures, "error", sqldb.Advised(err))
			e.sleep(ctx, runBackoff.Delay(failures, e.options.Random()), nil)
			continue
		}
		failures = 0
		if r.Claimed == 0 {
			e.sleep(ctx, e.idle(r), e.wake)
		} else if rest := e.queue.Gather - e.options.Now().Sub(begin); rest > 0 && !e.full.Load() {
			e.sleep(ctx, rest, nil)
		}
	}
}

// idle is how long to sleep after a turn that found nothing.
func (e *Engine) idle(r Result) time.Duration {
	if r.Paused {
		return min(pausedPoll, e.queue.Idle)
	}
	if r.Next.IsZero() {
		return e.queue.Idle
	}
	return min(max(r.Next.Sub(e.options.Now()), busyPoll), e.queue.Idle)
}

func (e *Engine) sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-wake:
	}
}

// Wake says that a task may be due. It does not block, and is not lost while Run is
// busy.
func (e *Engine) Wake() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// maxTracedKeys bounds the keys that the span of a batch names.
const maxTracedKeys = 20

// processTraced processes a batch. Tasks of different traces are in different
// transactions, so that what a transaction enqueues belongs to one trace. Tasks without a
// trace stay together.
func (e *Engine) processTraced(ctx context.Context, c batch, r *Result) (err error) {
	for _, part := range c.byTrace() {
		if part.tasks[0].trace == "" {
			err = e.process(ctx, part, r)
		} else {
			failed := r.Failed
			spanCtx, end := tracing.Continue(ctx, part.tasks[0].trace, "review "+e.queue.Name, part.attributes(e.queue.Name)...)
			err = e.process(spanCtx, part, r)
			end(spanError(err, r.Failed-failed))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// byTrace splits a batch by traceparent, in the order of the first task of each.
func (c batch) byTrace() []batch {
	traced := false
	for i := range c.tasks {
		traced = traced || c.tasks[i].trace != ""
	}
	if !traced {
		return []batch{c}
	}
	var parts []batch
	at := map[string]int{}
	for _, task := range c.tasks {
		i, found := at[task.trace]
		if !found {
			i = len(parts)
			at[task.trace] = i
			parts = append(parts, batch{token: c.token})
		}
		parts[i].tasks = append(parts[i].tasks, task)
	}
	return parts
}

func (c batch) attributes(queue string) []attribute.KeyValue {
	keys := c.keys()
	return []attribute.KeyValue{
		attribute.String("exeunt.queue", queue), attribute.Int("exeunt.tasks", len(keys)),
		attribute.StringSlice("exeunt.keys", keys[:min(len(keys), maxTracedKeys)]), attribute.String("exeunt.event", c.tasks[0].Event),
	}
}

// reviewTraced calls the reviewer. Rows that it enqueues get the trace of ctx.
func (e *Engine) reviewTraced(ctx context.Context, tx Tx, review reviewFunc, now time.Time, tasks []Task) ([]Verdict, error) {
	traceparent := tracing.Traceparent(ctx)
	if traceparent == "" || e.queue.Outside {
		return e.review(ctx, review, now, tasks)
	}
	var mark, unmark sqldb.Batch
	mark.MarkTraces(e.db.Engine(), map[string]string{"": traceparent})
	if err := tx.Send(ctx, &mark); err != nil {
		return nil, err
	}
	verdicts, err := e.review(ctx, review, now, tasks)
	if err != nil {
		return nil, err
	}
	// A store's transaction may hold writes back. They must fire their triggers now.
	if held, ok := tx.(interface{ Flush() error }); ok {
		if err := held.Flush(); err != nil {
			return nil, err
		}
	}
	unmark.UnmarkTraces(e.db.Engine())
	return verdicts, tx.Send(ctx, &unmark)
}

// spanError is the error that a span shows.
func spanError(err error, failed int) error {
	if err == nil && failed > 0 {
		return errTasksFailed
	}
	return err
}
