package registry

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/exeunt/exeunt/sqldb"
)

const (
	// maxBatch bounds the writes of one transaction on SQLite, and so how long
	// the last of them waits for the first.
	maxBatch = 128
	// maxTries bounds how often a transaction that PostgreSQL chose as the
	// victim of a deadlock is run again.
	maxTries = 5
)

// writer runs write transactions.
//
// On SQLite there is one writing connection and every commit waits for the
// disk, so writes that come while one is under way are collected and committed
// together: the first of those that wait does it for all. While the disk works
// for one batch the next one runs, and those that come then wait for it to be
// over: a third batch would be small, and cost as much as a large one.
//
// Writes hardly ever fail once they have come here. So they run together
// without savepoints, which would copy every page that each of them touches;
// if one does fail they are run again, each under its own, and one that fails
// takes back only what is its own.
//
// On PostgreSQL transactions run concurrently, and the database itself groups
// their commits.
type writer struct {
	db    *sqldb.DB
	flush func() error // makes what was committed last: db.Flush
	log   *slog.Logger

	mu    sync.Mutex
	busy  bool     // somebody leads; guarded by mu
	queue []*write // guarded by mu

	disk sync.Mutex // held while the disk works for a batch
}

func newWriter(db *sqldb.DB, log *slog.Logger) *writer {
	return &writer{db: db, flush: db.Flush, log: log}
}

// write is a transaction that waits to be run.
type write struct {
	ctx  context.Context
	fn   func(tx *sqldb.Tx) error
	err  error         // set before done is closed
	done chan struct{} // closed when it has been committed, or not
	lead chan struct{} // closed when it is its turn to lead
}

// do runs fn in a transaction and commits it when fn returns nil. fn may run
// more than once, and must not keep what it learned before.
func (w *writer) do(ctx context.Context, fn func(tx *sqldb.Tx) error) error {
	if w.db.Engine() == sqldb.Postgres {
		return w.alone(ctx, fn)
	}
	op := &write{ctx: ctx, fn: fn, done: make(chan struct{}), lead: make(chan struct{})}
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

// leadOne commits what is waiting, the leader's own write among it, hands the
// lead on when the disk is free, and tells everybody when it lasts.
func (w *writer) leadOne() {
	// Whoever is about to write gets here first: a commit costs nearly as much
	// for one write as for several.
	runtime.Gosched()
	w.mu.Lock()
	n := min(len(w.queue), maxBatch)
	batch := w.queue[:n:n]
	w.queue = w.queue[n:]
	w.mu.Unlock()

	err := w.commit(batch)
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

// handOver makes the first that waits the leader.
func (w *writer) handOver() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = len(w.queue) > 0
	if w.busy {
		close(w.queue[0].lead)
	}
}

// commit runs a batch in one transaction. Its error is everybody's; that of one
// write is in the write.
func (w *writer) commit(batch []*write) error {
	err := w.commitOnce(batch, runPlain)
	if errors.Is(err, errOneFailed) {
		err = w.commitOnce(batch, runApart)
	}
	return err
}

func (w *writer) commitOnce(batch []*write, run func(context.Context, *sqldb.Tx, *write) error) error {
	ctx := context.Background()
	tx, err := w.db.BeginAhead(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after a commit
	for _, op := range batch {
		if op.err = op.ctx.Err(); op.err != nil {
			continue // its caller has gone
		}
		if err := run(ctx, tx, op); err != nil {
			return err
		}
	}
	return tx.Commit(ctx)
}

// errOneFailed: one write of a batch failed, and has spoilt the others.
var errOneFailed = errors.New("a write of the batch failed")

func runPlain(_ context.Context, tx *sqldb.Tx, op *write) error {
	if op.fn(tx) != nil {
		return errOneFailed
	}
	return nil
}

// runApart undoes a write that fails.
func runApart(ctx context.Context, tx *sqldb.Tx, op *write) error {
	if err := exec(ctx, tx, "SAVEPOINT write"); err != nil {
		return err
	}
	if op.err = op.fn(tx); op.err != nil {
		if err := exec(ctx, tx, "ROLLBACK TO write"); err != nil {
			return errors.Join(op.err, err)
		}
	}
	return exec(ctx, tx, "RELEASE write")
}

// alone runs one transaction, and again when it lost a deadlock. All lock in
// one order, so that is not to be expected, and worth a line in the log.
func (w *writer) alone(ctx context.Context, fn func(tx *sqldb.Tx) error) error {
	for try := 1; ; try++ {
		err := w.db.Transact(ctx, fn)
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

func exec(ctx context.Context, tx *sqldb.Tx, statement string, args ...any) error {
	var b sqldb.Batch
	b.Exec(statement, args...)
	return tx.Send(ctx, &b)
}

// one reads at most one row, and reports whether there was one.
func one(ctx context.Context, tx *sqldb.Tx, statement string, args []any, dest ...any) (bool, error) {
	found := false
	var b sqldb.Batch
	b.Query(func(row sqldb.Row) error {
		found = true
		return row.Scan(dest...)
	}, statement, args...)
	err := tx.Send(ctx, &b)
	return found, err
}
