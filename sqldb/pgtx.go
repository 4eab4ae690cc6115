package sqldb

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The first of these is sent with the first batch of a transaction: sent alone, it
// would cost every transaction a round trip.
const (
	beginPostgres         = `BEGIN ISOLATION LEVEL READ COMMITTED`
	beginSnapshotPostgres = `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`
)

const commitPostgres = `COMMIT`

// rollbackTimeout is how long a rollback waits for PostgreSQL before it closes the
// connection, which rolls back as well.
const rollbackTimeout = 5 * time.Second

// pgTx is a transaction on PostgreSQL.
type pgTx struct {
	conn  *pgxpool.Conn // nil after the end of the transaction
	begin []string      // what begins it; nil after it was sent
	last  Batch         // sent with the commit
}

func beginPG(ctx context.Context, pool *pgxpool.Pool, begin ...string) (*pgTx, error) {
	wait, cancel := boundWait(ctx)
	defer cancel() // ends the wait for a connection, not its use
	conn, err := pool.Acquire(wait)
	return &pgTx{conn: conn, begin: begin}, err
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
	return sendPG(ctx, t.conn.Conn(), t.first(), b)
}

// sendPG sends the statements of a batch behind those of sent.
func sendPG(ctx context.Context, conn *pgx.Conn, sent *pgx.Batch, b *Batch) error {
	for i := range b.items {
		it := &b.items[i]
		queued := sent.Queue(it.statement, it.args...)
		if it.found != nil {
			queued.Exec(func(tag pgconn.CommandTag) error { *it.found = tag.RowsAffected() > 0; return nil })
			continue
		}
		if it.row == nil {
			continue
		}
		queued.Query(func(rows pgx.Rows) error {
			row := pgRow{rows: rows}
			for rows.Next() {
				if err := it.row(&row); err != nil {
					return err
				}
			}
			return rows.Err()
		})
	}
	return conn.SendBatch(ctx, sent).Close()
}

// readTries bounds how often a read is sent that a broken connection did not take.
const readTries = 3

// readPG reads the newest state.
func (db *DB) readPG(ctx context.Context, b *Batch) error {
	wait, cancel := boundWait(ctx)
	defer cancel()
	for try := 1; ; try++ {
		err := db.readPool.AcquireFunc(wait, func(conn *pgxpool.Conn) error { return sendPG(ctx, conn.Conn(), &pgx.Batch{}, b) })
		if err == nil || try == readTries || !pgconn.SafeToRetry(err) {
			return err
		}
	}
}

// first is a batch that begins the transaction, if nothing has been sent yet.
func (t *pgTx) first() *pgx.Batch {
	sent := &pgx.Batch{}
	for _, statement := range t.begin {
		sent.Queue(statement)
	}
	t.begin = nil
	return sent
}

// sendAndCommit sends the statements and COMMIT in one round trip. PostgreSQL skips what follows a
// statement that fails, COMMIT too.
func (t *pgTx) sendAndCommit(ctx context.Context, b *Batch) error {
	if t.conn == nil {
		return pgx.ErrTxClosed
	}
	sent := t.first()
	for i := range b.items {
		sent.Queue(b.items[i].statement, b.items[i].args...)
	}
	before := sent.Len()
	begins := before - len(b.items)
	sent.Queue(commitPostgres)
	results := t.conn.SendBatch(ctx, sent)
	for i := range before {
		tag, err := results.Exec()
		if err != nil {
			_ = results.Close() // the same error
			return refused(err)
		}
		if i >= begins && b.items[i-begins].found != nil {
			*b.items[i-begins].found = tag.RowsAffected() > 0
		}
	}
	tag, err := results.Exec()
	if err == nil && tag.String() == "ROLLBACK" {
		err = pgx.ErrTxCommitRollback
	}
	if closed := results.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = t.confirmed()
		t.end()
	}
	return err
}

// refused is the error of a statement before the commit. If PostgreSQL has not answered, as when
// the connection broke, the COMMIT that was sent with the statement may have been carried out.
func refused(err error) error {
	var answered *pgconn.PgError
	if errors.As(err, &answered) {
		return &RefusedError{err}
	}
	return err
}

func (t *pgTx) commit(ctx context.Context) error {
	if t.conn == nil {
		return pgx.ErrTxClosed
	}
	defer t.end()
	if t.begin != nil {
		return nil
	}
	tag, err := t.conn.Exec(ctx, commitPostgres)
	if err == nil && tag.String() == "ROLLBACK" {
		err = pgx.ErrTxCommitRollback // a statement had failed
	}
	if err == nil {
		err = t.confirmed()
	}
	return err
}

// A COMMIT that waits for a synchronous standby succeeds, with a warning, when an operator cancels
// the wait (pg_cancel_backend). The standby may not have the transaction, and a failover
// loses it. So the outcome is not known, and the client must not hear of a success.
var errUnconfirmed = errors.New("PostgreSQL stopped waiting for its synchronous standby, which may not have the transaction")

// confirmed is the error of a commit that PostgreSQL did not wait for.
func (t *pgTx) confirmed() error {
	left := t.conn.Conn().PgConn().CustomData()
	if left[unconfirmed] == nil {
		return nil
	}
	delete(left, unconfirmed)
	return errUnconfirmed
}

// unconfirmed is the key under which a connection keeps that its last commit got the warning.
const unconfirmed = "exeunt.unconfirmed"

// noticeUnconfirmed marks a connection. The name of PostgreSQL's function is in every message,
// and unlike the text is never translated.
func noticeUnconfirmed(conn *pgconn.PgConn, n *pgconn.Notice) {
	if n.Routine == "SyncRepWaitForLSN" {
		conn.CustomData()[unconfirmed] = true
	}
}

// rollback ignores errors: after one the connection is closed, and the transaction
// with it.
func (t *pgTx) rollback() {
	if t.conn == nil {
		return
	}
	defer t.end()
	if t.begin == nil && !t.conn.Conn().IsClosed() {
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
