package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
)

const (
	maxBatch      = 500
	maxBatchBytes = 8 << 20
	maxQueue      = 4 * maxBatch
	maxPatience   = time.Millisecond

	// batchTimeout is how long PostgreSQL may take for one batch.
	batchTimeout = 30 * time.Second
)

// writer collects the writes of the process into batches (group commit). While
// one batch commits, the next one gathers, so the cost per write falls under
// load.
type writer struct {
	log *slog.Logger
	// transact runs operations in one transaction: see Store.writeBatch.
	transact func(ctx context.Context, ops []*operation) error

	queue chan *operation
	jobs  chan func() // work between two batches, such as compaction

	ended     chan struct{} // closed when no more operations are answered
	endOnce   sync.Once
	endReason error // set once, before ended is closed

	last int           // operations in the previous batch; owned by run
	took time.Duration // duration of the previous batch; owned by run
}

func newWriter(log *slog.Logger, transact func(context.Context, []*operation) error) *writer {
	return &writer{
		log: log, transact: transact,
		queue: make(chan *operation, maxQueue),
		jobs:  make(chan func()),
		ended: make(chan struct{}),
	}
}

// submit hands an operation to the writer and waits for its answer. If ctx ends
// first and the operation's batch has begun, the write may still happen.
func (w *writer) submit(ctx context.Context, op *operation) error {
	if err := w.enqueue(ctx, op); err != nil {
		return err
	}
	return w.wait(ctx, op)
}

// enqueue hands an operation to the writer. If it succeeds, the caller waits.
func (w *writer) enqueue(ctx context.Context, op *operation) error {
	op.ctx, op.done = ctx, make(chan struct{})
	select {
	case <-w.ended:
		return w.endReason
	default:
	}
	select {
	case w.queue <- op:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-w.ended:
		return w.endReason
	}
}

// wait returns the answer to an operation that is in the queue.
func (w *writer) wait(ctx context.Context, op *operation) error {
	select {
	case <-op.done:
		return op.err
	case <-ctx.Done():
		return ctx.Err()
	case <-w.ended:
	}
	select { // the last batch was answered before the end
	case <-op.done:
		return op.err
	default:
		return w.endReason
	}
}

// do runs fn between two batches.
func (w *writer) do(ctx context.Context, fn func() error) error {
	result := make(chan error, 1)
	job := func() {
		defer func() {
			if p := recover(); p != nil {
				result <- fmt.Errorf("panic: %v: %s", p, debug.Stack())
			}
		}()
		result <- fn()
	}
	select {
	case w.jobs <- job:
		return <-result
	case <-ctx.Done():
		return ctx.Err()
	case <-w.ended:
		return w.endReason
	}
}

// run writes until ctx ends, and finishes the current batch. After each job it
// writes a batch if one waits: jobs may take long and follow each other closely.
func (w *writer) run(ctx context.Context) {
	batch := make([]*operation, 0, maxBatch)
	write := func(first *operation) {
		batch = w.gather(append(batch[:0], first))
		begin := time.Now()
		w.last = len(batch)
		w.runBatch(ctx, batch)
		w.took = time.Since(begin)
		clear(batch[:cap(batch)])
	}
	for {
		select {
		case <-ctx.Done():
			w.close(errStopped)
			return
		case job := <-w.jobs:
			job()
			select {
			case op := <-w.queue:
				write(op)
			default:
			}
		case op := <-w.queue:
			write(op)
		}
	}
}

// runBatch runs operations and answers each, also when one panics. If the database refuses the batch, each operation
// runs in a transaction of its own, so that only the operation at fault fails.
func (w *writer) runBatch(ctx context.Context, batch []*operation) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchTimeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			w.log.Error("write panicked", "panic", p, "stack", string(debug.Stack()))
			for _, op := range batch {
				if !op.answered() {
					op.answer(fmt.Errorf("write %s: panic: %v", op.key, p))
				}
			}
		}
	}()
	live := batch[:0]
	for _, op := range batch {
		if err := op.ctx.Err(); err != nil {
			op.answer(err)
			continue
		}
		live = append(live, op)
	}
	if len(live) == 0 {
		return
	}
	err := w.transact(ctx, live)
	refused := new(sqldb.RefusedError)
	if !errors.As(err, &refused) || len(live) == 1 {
		answerAll(live, err)
		return
	}
	for i, op := range live {
		err := w.transact(ctx, live[i:i+1])
		if err != nil && !errors.As(err, &refused) {
			answerAll(live[i:], err) // the database is unavailable: do not try the others
			return
		}
		op.answer(err)
	}
}

// gather takes the queued operations. After a batch its clients send their next
// operations, but need a moment to do so; a batch with only the first of them
// would pay for a commit that others could share. So gather waits for as many
// operations as the previous batch had, for at most a quarter of the time that
// batch took, and at most maxPatience.
func (w *writer) gather(batch []*operation) []*operation {
	size := batch[0].size
	var patience <-chan time.Time
	for len(batch) < maxBatch && size < maxBatchBytes {
		var op *operation
		select {
		case op = <-w.queue:
		default:
			if len(batch) >= w.last {
				return batch
			}
			if patience == nil {
				patience = time.After(min(w.took/4, maxPatience))
			}
			select {
			case op = <-w.queue:
			case <-patience:
				return batch
			}
		}
		batch = append(batch, op)
		size += op.size
	}
	return batch
}

// close fails the operations that wait, and all later ones, with reason.
func (w *writer) close(reason error) {
	w.endOnce.Do(func() {
		w.endReason = reason
		close(w.ended)
	})
}

// checkKey refuses keys that one of the engines cannot store.
func checkKey(k object.Key) error {
	if k.Kind == "" || k.Name == "" {
		return object.BadRequestf("object %q has no kind or no name", k.String())
	}
	for _, s := range [...]string{k.Kind, k.Namespace, k.Name} {
		if !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 {
			return object.BadRequestf("object key %q is not valid text", k.String())
		}
	}
	return nil
}
