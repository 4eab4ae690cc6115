package store

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/exeunt/exeunt/object"
)

const (
	maxBatch      = 500
	maxBatchBytes = 8 << 20
	maxQueue      = 4 * maxBatch
	maxPatience   = time.Millisecond

	// batchTimeout is how long PostgreSQL may take for one batch.
	batchTimeout = 30 * time.Second
)

// writer collects the writes of the process into batches. While one batch is
// being committed the next one gathers, so the more there is to write, the less
// each write costs.
type writer struct {
	env   environment
	queue chan *operation
	jobs  chan func() // work between batches: compaction

	ended     chan struct{} // closed when nothing more will be answered
	endOnce   sync.Once
	endReason error // set once, before ended is closed

	last int           // size of the batch before; owned by run
	took time.Duration // what it took; owned by run
}

func newWriter(env environment) *writer {
	return &writer{
		env:   env,
		queue: make(chan *operation, maxQueue),
		jobs:  make(chan func()),
		ended: make(chan struct{}),
	}
}

// submit hands an operation to the writer and waits for its answer. When ctx
// ends first, the operation may still happen, unless it had not begun.
func (w *writer) submit(ctx context.Context, op *operation) error {
	op.ctx, op.done = ctx, make(chan struct{})
	select {
	case <-w.ended:
		return w.endReason
	default:
	}
	select {
	case w.queue <- op:
	case <-ctx.Done():
		return ctx.Err()
	case <-w.ended:
		return w.endReason
	}
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

// run writes until ctx ends. The batch that it is at is finished. Those who
// waited for a job have their turn before the next one: jobs may take long, and
// come one after the other.
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

// runBatch keeps the writer alive when a batch panics.
func (w *writer) runBatch(ctx context.Context, batch []*operation) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchTimeout)
	defer cancel()
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		w.env.log.Error("write panicked", "panic", p, "stack", string(debug.Stack()))
		for _, op := range batch {
			if !op.answered() {
				op.answer(fmt.Errorf("write %s: panic: %v", op.key, p))
			}
		}
	}()
	w.env.runBatch(ctx, batch)
}

// gather takes what is queued. After a batch its callers come back with their
// next operations, but need a moment to do so: taking only the first of them
// would pay for a commit that could have been shared. So it waits for as many
// as there were in the batch before, for a small part of the time that one took.
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

// close refuses everything that is and will be waiting.
func (w *writer) close(reason error) {
	w.endOnce.Do(func() {
		w.endReason = reason
		close(w.ended)
	})
}

// checkKey refuses what cannot be stored on both engines.
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
