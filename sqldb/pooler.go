package sqldb

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// errPooler: between us and PostgreSQL is a pooler that gives a connection another session
// for each transaction. Our settings, LISTEN and the locks that show who is alive belong to
// a session.
var errPooler = errors.New("a pooler shares PostgreSQL's sessions between transactions (pgbouncer: pool_mode = transaction): " +
	"use pool_mode = session, or name PostgreSQL itself in --database")

// checkSessions finds such a pooler: it asks one connection twice which session it has, and
// meanwhile occupies the first session by the transaction of another connection. A pooler that
// does not reuse the session that was free last is not found.
func checkSessions(ctx context.Context, pool, other *pgxpool.Pool) error {
	first, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer first.Release()
	second, err := other.Acquire(ctx)
	if err != nil {
		return err
	}
	defer second.Release()
	before, err := session(ctx, first)
	if err != nil {
		return err
	}
	tx, err := second.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, "SELECT 1"); err != nil {
		return err
	}
	after, err := session(ctx, first)
	if err == nil && after != before {
		err = errPooler
	}
	return err
}

// session returns the process id of the session. It prepares nothing: a statement that was
// prepared in one session does not exist in another.
func session(ctx context.Context, conn *pgxpool.Conn) (pid int, err error) {
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid); err != nil {
		return 0, fmt.Errorf("ask for the session: %w", err)
	}
	return pid, nil
}
