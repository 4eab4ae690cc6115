package registry

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/exeunt/exeunt/sqldb"
)

const (
	// maxBatch bounds the writes of one transaction on SQLite, and so how long
	// a write waits for the others.
	maxBatch = 128
	// maxTries bounds how often a transaction that lost a deadlock on PostgreSQL
	// is run.
	maxTries = 5
)

// writer runs write transactions.
//
// On SQLite there is one writing connection, and every commit waits for the
// disk. So writes that arrive during a commit are committed together: the first
// waiting write leads and runs the batch for all. While the disk syncs one
// batch, the next one runs. Writes that arrive then wait for it to finish: a
// third batch would be small, and cost as much as a large one.
//
// Writes rarely fail at this point. So a batch runs without savepoints, which
// would copy every page that each write touches. If one write fails, the batch
// runs again with a savepoint for each, and only the failed write is rolled
// back.
//
// On PostgreSQL transactions run concurrently, and the database groups their
// commits.
type writer struct {
	db    *sqldb.DB
	flush func() error // makes committed writes durable: db.Flush
	log   *slog.Logger

	mu    sync.Mutex
	busy  bool     // a leader is running; guarded by mu
	queue []*write // guarded by mu

	disk sync.Mutex // held while the disk syncs a batch
}

func newWriter(db *sqldb.DB, log *slog.Logger) *writer {
	return &writer{db: db, flush: db.Flush, log: log}
}

// write is a transaction in the queue.
type write struct {
	ctx  context.Context
	fn   func(tx *sqldb.Tx) error
	soon bool          // does not wait for the disk
	err  error         // set before done is closed
	done chan struct{} // closed after the commit or the failure
	lead chan struct{} // closed when this write becomes the leader
}

// do runs fn in a transaction and commits it when fn returns nil. fn may run
// more than once, and must not keep results of an earlier run.
func (w *writer) do(ctx context.Context, fn func(tx *sqldb.Tx) error) error {
	return w.run(&write{ctx: ctx, fn: fn})
}

// doSoon is do for a write that a power cut may undo before the next write is durable. It must
// not matter to the client, as where the client's next request repeats the question.
func (w *writer) doSoon(ctx context.Context, fn func(tx *sqldb.Tx) error) error {
	return w.run(&write{ctx: ctx, fn: fn, soon: true})
}

func (w *writer) run(op *write) error {
	if w.db.Engine() == sqldb.Postgres {
		return w.runAlone(op)
	}
	op.done, op.lead = make(chan struct{}), make(chan struct{})
	w.mu.Lock()
	w.queue = append(w.queue, op)
	first := !w.busy
	w.busy = true
	w.mu.Unlock()
	if !first {
		select {
		case <-op.done:
			return op.err
		case <-op.lead:
		}
	}
	w.leadOne()
	<-op.done
	return op.err
}

// leadOne commits the waiting writes, including the leader's own. It passes the
// lead on when the disk is free, and reports to all writes when the batch is
// durable.
func (w *writer) leadOne() {
	// Let goroutines that are about to write join the batch: a commit costs
	// nearly as much for one write as for several.
	runtime.Gosched()
	w.mu.Lock()
	n := min(len(w.queue), maxBatch)
	batch := w.queue[:n:n]
	w.queue = w.queue[n:]
	w.mu.Unlock()

	err := w.commit(batch)
	if err == nil {
		batch = slices.DeleteFunc(batch, func(op *write) bool {
			if op.soon {
				close(op.done)
			}
			return op.soon
		})
	}
	if len(batch) == 0 {
		w.handOver()
		return
	}
	w.disk.Lock()
	w.handOver()
	if err == nil {
		err = w.flush()
	}
	w.disk.Unlock()
	for _, op := range batch {
		if op.err == nil {
			op.err = err
		}
		close(op.done)
	}
}

// handOver makes the first waiting write the leader.
func (w *writer) handOver() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = len(w.queue) > 0
	if w.busy {
		close(w.queue[0].lead)
	}
}

// commit runs a batch in one transaction. Its error applies to all writes; the
// error of one write is stored in that write.
func (w *writer) commit(batch []*write) error {
	err := w.commitOnce(batch, runDirect)
	if errors.Is(err, errOneFailed) {
		err = w.commitOnce(batch, runInSavepoint)
	}
	return err
}

func (w *writer) commitOnce(batch []*write, run func(context.Context, *sqldb.Tx, *write) error) error {
	ctx := context.Background()
	tx, err := w.db.Begin(ctx, sqldb.Ahead)
	if err != nil {
		return err
	}
	defer tx.Rollback() // no effect after a commit
	for _, op := range batch {
		if op.err = op.ctx.Err(); op.err != nil {
			continue // the client has disconnected
		}
		if err := run(ctx, tx, op); err != nil {
			return err
		}
	}
	return tx.Commit(ctx)
}

// errOneFailed: one write failed, so the transaction of the whole batch is
// rolled back.
var errOneFailed = errors.New("a write of the batch failed")

func runDirect(_ context.Context, tx *sqldb.Tx, op *write) error {
	if op.fn(tx) != nil {
		return errOneFailed
	}
	return nil
}

// runInSavepoint runs a write in a savepoint, and rolls it back if it fails.
func runInSavepoint(ctx context.Context, tx *sqldb.Tx, op *write) error {
	if err := tx.Exec(ctx, "SAVEPOINT write"); err != nil {
		return err
	}
	if op.err = op.fn(tx); op.err != nil {
		if err := tx.Exec(ctx, "ROLLBACK TO write"); err != nil {
			return errors.Join(op.err, err)
		}
	}
	return tx.Exec(ctx, "RELEASE write")
}

// runAlone runs one transaction, and retries it when it lost a deadlock. All
// transactions lock in one order, so a deadlock is unexpected and is logged.
func (w *writer) runAlone(op *write) error {
	durability := sqldb.Durable
	if op.soon {
		durability = sqldb.Unsynced
	}
	for try := 1; ; try++ {
		err := w.db.Transact(op.ctx, op.fn, durability)
		if err == nil || try == maxTries || !lostDeadlock(err) {
			return err
		}
		w.log.Warn("registry: deadlock, trying again", "try", try, "error", err)
	}
}

func lostDeadlock(err error) bool {
	var coded *pgconn.PgError
	return errors.As(err, &coded) && (coded.Code == "40P01" || coded.Code == "40001")
}
