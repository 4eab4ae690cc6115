package sqldb

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// beginPostgres is sent with the first batch of a transaction: sent alone, it
// would cost every transaction a round trip.
const beginPostgres = `BEGIN ISOLATION LEVEL READ COMMITTED`

// rollbackTimeout is how long a rollback waits for PostgreSQL before it closes the
// connection, which rolls back as well.
const rollbackTimeout = 5 * time.Second

// pgTx is a write transaction on PostgreSQL.
type pgTx struct {
	conn  *pgxpool.Conn // nil after the end of the transaction
	begun bool
}

func (db *DB) beginPG(ctx context.Context) (*pgTx, error) {
	wait, cancel := boundWait(ctx)
	defer cancel() // ends the wait for a connection, not its use
	conn, err := db.writePool.Acquire(wait)
	if err != nil {
		return nil, err
	}
	return &pgTx{conn: conn}, nil
}

// boundWait is ctx with a deadline of mostWait, if it has none.
func boundWait(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, mostWait)
}

func (t *pgTx) send(ctx context.Context, b *Batch) error {
	if t.conn == nil {
		return pgx.ErrTxClosed
	}
	var sent pgx.Batch
	if !t.begun {
		t.begun = true
		sent.Queue(beginPostgres)
	}
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
	return t.conn.SendBatch(ctx, &sent).Close()
}

func (t *pgTx) commit(ctx context.Context) error {
	if t.conn == nil {
		return pgx.ErrTxClosed
	}
	defer t.end()
	if !t.begun {
		return nil
	}
	tag, err := t.conn.Exec(ctx, "COMMIT")
	if err == nil && tag.String() == "ROLLBACK" {
		err = pgx.ErrTxCommitRollback // a statement had failed
	}
	return err
}

// rollback ignores errors: after one the connection is closed, and the transaction
// with it.
func (t *pgTx) rollback() {
	if t.conn == nil {
		return
	}
	defer t.end()
	if t.begun && !t.conn.Conn().IsClosed() {
		ctx, cancel := context.WithTimeout(context.Background(), rollbackTimeout)
		defer cancel()
		_, _ = t.conn.Exec(ctx, "ROLLBACK")
	}
}

// end returns the connection. The pool closes a connection that is still in a
// transaction.
func (t *pgTx) end() {
	t.conn.Release()
	t.conn = nil
}
