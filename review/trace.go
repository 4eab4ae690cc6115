package review

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/exeunt/exeunt/internal/tracing"
	"github.com/exeunt/exeunt/sqldb"
)

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
	if traceparent == "" {
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
