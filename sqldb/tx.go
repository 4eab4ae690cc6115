package sqldb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Batch is a list of statements that are sent together: on PostgreSQL in one round
// trip, on SQLite one after the other. The zero value is empty.
type Batch struct {
	items []item
}

type item struct {
	statement string
	args      []any
	row       func(Row) error // nil if rows are ignored
	found     *bool           // nil if rows are not counted
}

// Exec adds a statement whose rows are ignored.
func (b *Batch) Exec(statement string, args ...any) {
	b.items = append(b.items, item{statement: statement, args: args})
}

// Query adds a statement; row is called for each of its rows, in order.
func (b *Batch) Query(row func(Row) error, statement string, args ...any) {
	b.items = append(b.items, item{statement: statement, args: args, row: row})
}

// Found adds a statement and sets found to whether it returns a row. Unlike Query it can be
// sent with the commit.
func (b *Batch) Found(found *bool, statement string, args ...any) {
	*found = false
	b.items = append(b.items, item{statement: statement, args: args, found: found})
}

// Add adds the statements of another batch.
func (b *Batch) Add(other *Batch) { b.items = append(b.items, other.items...) }

// Sender runs batches: in a transaction, or as reads of the newest state.
type Sender interface {
	Send(ctx context.Context, b *Batch) error
}

// ErrEnough is for a row function of Each that needs no more rows.
var ErrEnough = errors.New("no more rows are needed")

// Each sends one statement and calls row for each of its rows, in order.
func Each(ctx context.Context, s Sender, row func(Row) error, statement string, args ...any) error {
	var b Batch
	b.Query(row, statement, args...)
	if err := s.Send(ctx, &b); !errors.Is(err, ErrEnough) {
		return err
	}
	return nil
}

// First sends one statement, reads its row into dest, and reports whether there is one.
func First(ctx context.Context, s Sender, dest []any, statement string, args ...any) (found bool, err error) {
	err = Each(ctx, s, func(row Row) error {
		found = true
		return row.Scan(dest...)
	}, statement, args...)
	return found, err
}

// Column sends one statement and returns the one column of its rows.
func Column[T any](ctx context.Context, s Sender, statement string, args ...any) (all []T, err error) {
	err = Each(ctx, s, Values(&all), statement, args...)
	return all, err
}

// Into is a row function that appends a T to all; fields are the places of the columns in it.
func Into[T any](all *[]T, fields func(*T) []any) func(Row) error {
	return func(row Row) error {
		var value T
		err := row.Scan(fields(&value)...)
		*all = append(*all, value)
		return err
	}
}

// Values is Into for a single column.
func Values[T any](all *[]T) func(Row) error {
	return Into(all, func(value *T) []any { return []any{value} })
}

// Pairs is a row function for two columns, a key and its value.
func Pairs[K comparable, V any](all map[K]V) func(Row) error {
	return func(row Row) error {
		var key K
		var value V
		err := row.Scan(&key, &value)
		all[key] = value
		return err
	}
}

// Tx is a write transaction that runs batches. It is for one goroutine. It ends
// with Commit or Rollback.
type Tx struct {
	lite     *liteTx // either this
	postgres *pgTx   // or this
}

// Durability says what a commit waits for.
type Durability int

const (
	// Durable commits survive a power cut.
	Durable Durability = iota
	// Ahead does not wait for the disk. On SQLite readers see the commit at once, and it is durable when the next
	// Flush has returned; do not answer the client before that. On PostgreSQL, which groups commits itself, it is
	// Durable.
	Ahead
	// Unsynced is for a transaction that a power cut, or a failover of PostgreSQL, may undo shortly after its commit:
	// it does not wait for the disk, nor for a standby. The next transaction that is durable makes it durable too.
	Unsynced
)

// Begin begins a write transaction, which is Durable unless d says otherwise. On SQLite it waits until the previous
// one has ended.
func (db *DB) Begin(ctx context.Context, d ...Durability) (*Tx, error) {
	level := Durable
	if len(d) > 0 {
		level = d[0]
	}
	var t Tx
	var err error
	if db.engine == Postgres {
		begin := []string{beginPostgres}
		if level == Unsynced {
			begin = append(begin, "SET LOCAL synchronous_commit = off")
		}
		t.postgres, err = beginPG(ctx, db.writePool, begin...)
	} else {
		t.lite, err = db.beginLite(ctx, level != Durable)
	}
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	return &t, nil
}

// Transact runs fn in a write transaction and commits it when fn returns nil.
func (db *DB) Transact(ctx context.Context, fn func(tx *Tx) error, d ...Durability) error {
	tx, err := db.Begin(ctx, d...)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after a commit
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// Waited is how often a transaction has waited for SQLite's one writer since Open.
func (db *DB) Waited() int64 { return db.writer.Stats().WaitCount }

// Send runs the statements of a batch in order and stops at the first error.
// After an error the transaction can only be rolled back. Statements are
// prepared once and kept: they must be constants. On SQLite ctx is ignored:
// statements are short.
func (t *Tx) Send(ctx context.Context, b *Batch) error {
	if len(b.items) == 0 {
		return nil
	}
	if t.lite != nil {
		return t.lite.send(b)
	}
	return t.postgres.send(ctx, b)
}

// Exec runs one statement and ignores its rows.
func (t *Tx) Exec(ctx context.Context, statement string, args ...any) error {
	var b Batch
	b.Exec(statement, args...)
	return t.Send(ctx, &b)
}

// SendLast is Send for the last statements of a transaction. On PostgreSQL the commit sends
// them, in its round trip, and returns their errors. They must have no row function.
func (t *Tx) SendLast(ctx context.Context, b *Batch) error {
	if t.postgres != nil {
		t.postgres.last.Add(b)
		return nil
	}
	if err := t.Send(ctx, b); err != nil {
		return &RefusedError{err}
	}
	return nil
}

// Commit makes the transaction durable. After an error it is unknown whether the
// transaction was committed, unless it is a [RefusedError].
func (t *Tx) Commit(ctx context.Context) error {
	var err error
	switch {
	case t.lite != nil:
		err = t.lite.commit()
	case len(t.postgres.last.items) > 0:
		err = t.postgres.sendAndCommit(ctx, &t.postgres.last)
	default:
		err = t.postgres.commit(ctx)
	}
	if err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// RefusedError is an error of a statement of SendAndCommit or SendLast: nothing was committed.
type RefusedError struct{ cause error }

// Refused is the error of a transaction that was not committed.
func Refused(cause error) error { return &RefusedError{cause} }

func (e *RefusedError) Error() string { return e.cause.Error() }
func (e *RefusedError) Unwrap() error { return e.cause }

// SendAndCommit is Send and then Commit, on PostgreSQL in one round trip unless a statement has a
// row function, which may refuse its row. After a [RefusedError] nothing was committed; after
// another error it is unknown.
func (t *Tx) SendAndCommit(ctx context.Context, b *Batch) error {
	if t.postgres == nil || slices.ContainsFunc(b.items, func(it item) bool { return it.row != nil }) {
		if err := t.Send(ctx, b); err != nil {
			return &RefusedError{err}
		}
		return t.Commit(ctx)
	}
	if err := t.postgres.sendAndCommit(ctx, b); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// Rollback undoes the transaction. After Commit it does nothing.
func (t *Tx) Rollback() {
	if t.lite != nil {
		t.lite.rollback()
		return
	}
	t.postgres.rollback()
}

// Len is the number of statements.
func (b *Batch) Len() int { return len(b.items) }

// Send runs the queries of a batch. Each sees the newest state of the database. Statements are
// prepared once and kept: they must be constants.
func (db *DB) Send(ctx context.Context, b *Batch) error {
	if db.engine == Postgres {
		return db.readPG(ctx, b)
	}
	return db.reads.Send(ctx, b)
}

// Row reads the one row that a statement finds by key, and reports whether there is one. ctx, or half
// a minute, bounds the wait for a connection. On SQLite it does not interrupt the read: reading one
// row is faster than starting the goroutine that would watch it.
func (db *DB) Row(ctx context.Context, statement string, args []any, dest ...any) (found bool, err error) {
	if db.engine == Postgres {
		ctx, cancel := boundWait(ctx)
		defer cancel()
		return First(ctx, db, dest, statement, args...)
	}
	b := Batch{items: []item{{statement: statement, args: args, row: func(row Row) error {
		found = true
		return row.Scan(dest...)
	}}}}
	return found, db.keyed.send(ctx, context.Background(), &b)
}

// Snapshot is a read-only transaction in which every statement sees the same state. Its batches
// come one after the other, and it is safe for concurrent use. It must be closed.
type Snapshot struct {
	mu       sync.Mutex
	readers  *liteReaders // either these
	lite     *liteConn    // and their connection; nil after Close
	postgres *pgTx        // or this
}

// Snapshot begins a Snapshot.
func (db *DB) Snapshot(ctx context.Context) (s *Snapshot, err error) {
	s = &Snapshot{readers: db.reads}
	if db.engine == Postgres {
		if s.postgres, err = beginPG(ctx, db.readPool, beginSnapshotPostgres); err != nil {
			return nil, err
		}
		return s, nil
	}
	if s.lite, err = db.reads.take(ctx); err != nil {
		return nil, err
	}
	if err := s.exec("BEGIN"); err != nil {
		s.readers.give(s.lite)
		return nil, err
	}
	return s, nil
}

func (s *Snapshot) exec(statement string) error {
	return s.lite.run(context.Background(), &item{statement: statement})
}

// Send runs the queries of a batch.
func (s *Snapshot) Send(ctx context.Context, b *Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.postgres != nil:
		return s.postgres.send(ctx, b)
	case s.lite == nil:
		return sql.ErrTxDone
	}
	return s.lite.send(ctx, b)
}

// Close ends the snapshot. A second call does nothing.
func (s *Snapshot) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.postgres != nil {
		s.postgres.rollback()
	} else if s.lite != nil {
		_ = s.exec("ROLLBACK") // it fails only if SQLite has rolled back by itself
		s.readers.give(s.lite)
		s.lite = nil
	}
}

const (
	markTracesSQLite     = `INSERT INTO trace_marks (subject, traceparent) SELECT key, value FROM json_each($1)`
	unmarkTracesSQLite   = `DELETE FROM trace_marks`
	markTracesPostgres   = `SELECT set_config('exeunt.traces', $1, true)`
	unmarkTracesPostgres = `SELECT set_config('exeunt.traces', '', true)`
)

// MarkTraces adds the statement that gives the rows that the transaction enqueues from
// here on a traceparent, by the uid of the object that is deleted; the empty uid means all
// other rows. UnmarkTraces must follow in the same transaction. The triggers are in
// sqldb/schema/sqlite/0010_trace.sql.
func (b *Batch) MarkTraces(engine Engine, traces map[string]string) {
	list, err := json.Marshal(traces)
	if err != nil {
		panic(err) // a map of strings is always valid
	}
	if engine == Postgres {
		b.Exec(markTracesPostgres, string(list))
		return
	}
	b.Exec(markTracesSQLite, string(list))
}

// UnmarkTraces ends MarkTraces.
func (b *Batch) UnmarkTraces(engine Engine) {
	if engine == Postgres {
		b.Exec(unmarkTracesPostgres)
		return
	}
	b.Exec(unmarkTracesSQLite)
}
