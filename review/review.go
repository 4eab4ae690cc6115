// Package review is the durable review queue: whatever may have become garbage
// is a row in a table, and a reviewer looks at it until it is settled.
//
// The promise: a row that a committed transaction put into the queue is
// reviewed, at least once, after its review_after. It leaves the queue only in
// the transaction that verified its subject and acted on it, or after an effect
// outside the database that succeeded. A failure postpones it. A replica that dies
// loses its claims as soon as another replica notices, at the latest when their
// lease ends. No row is lost. No two engines have the same row under review at the
// same time.
//
// The package knows neither what is reviewed nor why. The owner of a queue
// brings the table, the triggers that fill it, and a [Reviewer]. Begin with
// [Engine.RunOne]: it is one turn of the machine, and [Engine.Run] repeats it.
//
// # One turn
//
//	claim    a batch that is due, with a token and a lease      own transaction
//	hold     which of them still carry the token                ┐
//	review   the Reviewer verifies and acts                     │ one transaction
//	settle   delete, postpone or fail, where the token is left  ┘
//	effect   what the verdicts ask for outside the database     no transaction
//	settle   those whose effect ran                             own transaction
//
// When the transaction of a batch fails, each half of the batch is tried alone,
// and so on, until the task at fault is alone in its batch and fails. One poisoned
// row among n costs about 2·log2(n) transactions and does not stop the others.
//
// # The table
//
// The owner's migration creates it, with these columns on both engines:
//
//	<key>         TEXT PRIMARY KEY  the owner's name for it; valid UTF-8
//	review_after  BIGINT NOT NULL   Unix milliseconds
//	review_count  INTEGER NOT NULL  failures since the last success
//	event         TEXT NOT NULL     what put it here, last
//	created_at    BIGINT NOT NULL   Unix milliseconds
//	last_error    TEXT
//	claim_token   TEXT              null: not claimed
//	claim_until   BIGINT            Unix milliseconds
//	traceparent   TEXT              null: no trace enqueued it
//
// and an index on review_after. On PostgreSQL the table is not partitioned, and
// no other column is part of a unique index, which would make enqueuers wait for
// reviews; fillfactor = 50 keeps claims out of the indexes.
//
// # Enqueueing
//
// A trigger enqueues in the transaction that made something reviewable:
//
//	INSERT INTO q (key, review_after, review_count, event, created_at)
//	VALUES (…, …, 0, …, …)
//	ON CONFLICT (key) DO UPDATE SET
//	    review_after = least(q.review_after, excluded.review_after), -- SQLite: min
//	    event = excluded.event, claim_token = NULL, claim_until = NULL
//
// Clearing the token keeps the re-enqueue from being lost: a review that has begun
// may have read its subject before the change; without the token it cannot settle
// the row, so the row is reviewed again. Every statement from outside the engine
// that changes a row must clear it, also one that postpones. DO NOTHING would lose
// the change.
//
// The earlier time wins, so that a failing task is retried as soon as its subject
// changes; an owner that prefers to wait (a new upload) may take the later time.
// review_count and last_error stay: only a successful review resets them.
// Otherwise a busy subject whose review fails would always look new, restart its
// backoff and hide its error. created_at stays too: it says since when the row is
// in the queue.
//
// A reviewer's own writes may fire the trigger for the row under review. Then
// it is reviewed once more; a review that finds nothing to do must write
// nothing, or this never ends.
//
// # Locks on PostgreSQL
//
// The held rows are locked FOR KEY SHARE. Other engines cannot claim them
// (SKIP LOCKED), even when the lease has ended, but enqueuers do not wait, since
// they change no key. Enqueuers lock the rows that they write first and the queue
// last; a review does the same: it takes the stronger lock, in key order, only to
// settle. A writer that must exclude reviews locks the row FOR UPDATE first.
package review

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/exeunt/exeunt/sqldb"
)

// Queue says which table is reviewed, and how. Zero fields have defaults.
type Queue struct {
	Name  string // in metrics, logs and errors: "objects"
	Table string
	Key   string // the key column of Table

	// Batch bounds the tasks of one transaction. Default 200.
	Batch int
	// Lease is how long a claim lasts. It bounds the time of a transaction, the
	// time of the effects of a batch, and the wait for the tasks of a replica
	// that died. The clocks of the replicas must differ by less than this.
	// Default one minute.
	Lease time.Duration
	// Idle bounds the sleep of Run. Default 5 seconds.
	Idle time.Duration
	// Effects bounds the effects that run at once. Default 4.
	Effects int
	// Outside says that all verdicts of the Reviewer are made by Outside. Then it gets no transaction, and the turn has
	// none between claim and effects.
	Outside bool
	// Gather is the least time from the begin of a turn that claims less than Batch to the next one: what becomes due meanwhile
	// shares transactions. Default 0.
	Gather time.Duration

	Backoff Backoff
}

// Task is a row of the queue.
type Task struct {
	Key       string
	Event     string    // why it was enqueued last
	Count     int       // failures since the last success
	Created   time.Time // when it was enqueued first
	Due       time.Time // it is not reviewed before this
	LastError string    // the error of the last failure; empty if there is none
	Claimed   time.Time // the end of the lease; zero if not claimed

	trace string // the traceparent of the row; empty if not traced
}

// Tx is a write transaction. After an error of Send it cannot commit, and Review must return the error.
type Tx = sqldb.Sender

// Transactor runs fn in a transaction, commits it when fn returns nil and rolls
// it back otherwise. It returns after the end of the transaction. It may roll back
// and call fn again.
type Transactor[T Tx] func(ctx context.Context, fn func(tx T) error) error

// Reviewer verifies the subjects of tasks and acts, in transactions of type T.
type Reviewer[T Tx] interface {
	// Review returns one verdict for each task, in order. It reads and writes
	// only through tx. Its writes and the verdicts are committed together, or not
	// at all: then Review is called again, with fewer tasks. It must lock what its
	// verdict depends on, unless the transactor's lock covers it.
	//
	// A task may be reviewed any number of times, and its subject may be gone.
	// An error or a panic fails all the tasks. ctx ends with the lease.
	Review(ctx context.Context, tx T, now time.Time, tasks []Task) ([]Verdict, error)
}

// Options configure an Engine. Zero fields have defaults.
type Options struct {
	// Paused is called before each claim. Default: never paused.
	Paused func(ctx context.Context) (bool, error)
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// Random returns numbers from 0 to 1, for the backoff. Default math/rand.
	Random func() float64
	// Logger gets failures. Default slog.Default().
	Logger *slog.Logger
}

// Engine reviews a queue. It is safe for concurrent use, and any number of
// engines, in any number of processes, may share a queue.
type Engine struct {
	db       *sqldb.DB
	queue    Queue
	transact func(context.Context, func(Tx, reviewFunc) error) error
	options  Options
	sql      statements
	metrics  *metrics
	wake     chan struct{} // capacity 1: a pending wake-up
	full     atomic.Bool   // the last batch was full: more tasks may be due
	tookOver atomic.Int64  // when unblock last called TakeOver, in Unix milliseconds
}

var (
	validName       = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)
	validIdentifier = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)
)

// reviewFunc is a Reviewer's Review in a transaction that has begun.
type reviewFunc func(ctx context.Context, now time.Time, tasks []Task) ([]Verdict, error)

// New makes an engine whose reviews run in the transactions of transact. It does
// not touch the database.
func New[T Tx](db *sqldb.DB, q Queue, r Reviewer[T], transact Transactor[T], o Options) (*Engine, error) {
	if db == nil || r == nil || transact == nil {
		return nil, errors.New("review queue: needs a database, a reviewer and a transactor")
	}
	if err := q.complete(); err != nil {
		return nil, err
	}
	if o.Paused == nil {
		o.Paused = func(context.Context) (bool, error) { return false, nil }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.Logger = o.Logger.With("queue", q.Name)
	if q.Outside {
		transact = func(_ context.Context, fn func(T) error) error { return fn(*new(T)) }
	}
	// The engine itself needs no T: this is the one place that knows both.
	run := func(ctx context.Context, fn func(Tx, reviewFunc) error) error {
		return transact(ctx, func(tx T) error {
			return fn(tx, func(ctx context.Context, now time.Time, tasks []Task) ([]Verdict, error) {
				return r.Review(ctx, tx, now, tasks)
			})
		})
	}
	return &Engine{
		db: db, queue: q, transact: run, options: o,
		sql: newStatements(db.Engine(), q), metrics: newMetrics(q.Name), wake: make(chan struct{}, 1),
	}, nil
}

// complete checks the queue and fills in the defaults.
func (q *Queue) complete() error {
	if !validName.MatchString(q.Name) {
		return fmt.Errorf("review queue: name %q is not lower-case letters, digits, - and _", q.Name)
	}
	for _, name := range []string{q.Table, q.Key} {
		if !validIdentifier.MatchString(name) {
			return fmt.Errorf("review queue %s: %q is not the name of a table or column", q.Name, name)
		}
	}
	if q.Batch < 0 || q.Lease < 0 || q.Idle < 0 || q.Effects < 0 || q.Gather < 0 {
		return fmt.Errorf("review queue %s: a negative batch, lease, idle time or number of effects", q.Name)
	}
	setDefault(&q.Batch, 200)
	setDefault(&q.Lease, time.Minute)
	setDefault(&q.Idle, 5*time.Second)
	setDefault(&q.Effects, 4)
	if err := q.Backoff.complete(); err != nil {
		return fmt.Errorf("review queue %s: %w", q.Name, err)
	}
	return nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Transactions are plain transactions of the database, for reviewers that need
// nothing more.
func Transactions(db *sqldb.DB) Transactor[Tx] {
	return func(ctx context.Context, fn func(tx Tx) error) error {
		return db.Transact(ctx, func(tx *sqldb.Tx) error { return fn(tx) })
	}
}

// withoutSync runs a transaction that does not wait for the disk. A power cut may
// undo it, and that is harmless: a task without its claim can be claimed again,
// and a task that was not settled after its effect is reviewed once more.
func (e *Engine) withoutSync(ctx context.Context, fn func(tx Tx) error) error {
	return e.db.Transact(ctx, func(tx *sqldb.Tx) error { return fn(tx) }, sqldb.Unsynced)
}
