package sqldb

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Batch is a list of statements to be sent together: on PostgreSQL in one round
// trip, on SQLite one after the other. The zero value is empty.
type Batch struct {
	items []item
}

type item struct {
	statement string
	args      []any
	row       func(Row) error // nil: no rows are wanted
}

// Row is the row a query is at.
type Row interface {
	Scan(dest ...any) error
}

// Exec adds a statement whose rows do not matter.
func (b *Batch) Exec(statement string, args ...any) {
	b.items = append(b.items, item{statement: statement, args: args})
}

// Query adds a statement; row is called for each of its rows, in order.
func (b *Batch) Query(row func(Row) error, statement string, args ...any) {
	b.items = append(b.items, item{statement: statement, args: args, row: row})
}

// Len is the number of statements.
func (b *Batch) Len() int { return len(b.items) }

// Tx is a write transaction that is sent batches. It is for one goroutine. It
// ends with Commit or Rollback.
type Tx struct {
	db       *DB
	lite     *sql.Tx
	stmts    map[string]*sql.Stmt // of lite
	postgres pgx.Tx
}

// Begin begins a write transaction. On SQLite it waits until the one before it
// has ended.
func (db *DB) Begin(ctx context.Context) (*Tx, error) {
	t := &Tx{db: db}
	var err error
	if db.engine == Postgres {
		t.postgres, err = db.writePool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	} else {
		// A context that can end would cost a goroutine per statement.
		ctx = context.WithoutCancel(ctx)
		t.stmts = make(map[string]*sql.Stmt, 8)
		if err = db.prepareWanted(ctx); err == nil {
			t.lite, err = db.writer.BeginTx(ctx, nil)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	return t, nil
}

// Send runs the statements of a batch in order and stops at the first error.
// After an error the transaction can only be rolled back. Statements are
// prepared once and kept: they must be constants.
func (t *Tx) Send(ctx context.Context, b *Batch) error {
	if len(b.items) == 0 {
		return nil
	}
	if t.postgres != nil {
		return t.pipeline(ctx, b)
	}
	for i := range b.items {
		if err := t.one(context.WithoutCancel(ctx), &b.items[i]); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tx) pipeline(ctx context.Context, b *Batch) error {
	var sent pgx.Batch
	for i := range b.items {
		it := &b.items[i]
		queued := sent.Queue(it.statement, it.args...)
		if it.row == nil {
			continue
		}
		queued.Query(func(rows pgx.Rows) error {
			for rows.Next() {
				if err := it.row(rows); err != nil {
					return err
				}
			}
			return rows.Err()
		})
	}
	return t.postgres.SendBatch(ctx, &sent).Close()
}

func (t *Tx) one(ctx context.Context, it *item) error {
	stmt, err := t.stmt(ctx, it.statement)
	if err != nil {
		return err
	}
	if it.row == nil {
		_, err := stmt.ExecContext(ctx, it.args...)
		return err
	}
	rows, err := stmt.QueryContext(ctx, it.args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := it.row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (t *Tx) stmt(ctx context.Context, statement string) (*sql.Stmt, error) {
	if stmt := t.stmts[statement]; stmt != nil {
		return stmt, nil
	}
	t.db.mu.Lock()
	shared := t.db.writeStmts[statement]
	t.db.mu.Unlock()
	if shared != nil {
		stmt := t.lite.StmtContext(ctx, shared)
		t.stmts[statement] = stmt
		return stmt, nil
	}
	stmt, err := t.lite.PrepareContext(ctx, statement)
	if err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	t.stmts[statement] = stmt
	t.db.mu.Lock()
	t.db.wanted = append(t.db.wanted, statement)
	t.db.mu.Unlock()
	return stmt, nil
}

// prepareWanted prepares, for good, what the transactions so far had to prepare
// for themselves. Inside a transaction it would wait for ever for the only
// connection.
func (db *DB) prepareWanted(ctx context.Context) error {
	db.mu.Lock()
	wanted := db.wanted
	db.wanted = nil
	db.mu.Unlock()
	for _, statement := range wanted {
		if _, err := db.prepared(ctx, db.writer, db.writeStmts, statement); err != nil {
			return err
		}
	}
	return nil
}

// Commit makes the transaction last. After an error it is not known whether it
// does.
func (t *Tx) Commit(ctx context.Context) error {
	var err error
	if t.postgres != nil {
		err = t.postgres.Commit(ctx)
	} else {
		err = t.lite.Commit()
	}
	if err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// Rollback undoes the transaction. After Commit it does nothing.
func (t *Tx) Rollback() {
	// An error means that the connection is gone, and the transaction with it.
	if t.postgres != nil {
		_ = t.postgres.Rollback(context.Background())
	} else {
		_ = t.lite.Rollback()
	}
}
