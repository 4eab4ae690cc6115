package sqldb

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// Readers and writers have separate pools, so that a writer never waits for a
// connection that slow readers hold. pool_max_conns in the URL is for readers.
const (
	postgresReaders = 16
	postgresWriters = 8
)

func openPostgres(ctx context.Context, database string, limits Limits) (*DB, error) {
	db := &DB{engine: Postgres}
	if err := db.connectPostgres(ctx, database, limits); err != nil {
		return nil, errors.Join(fmt.Errorf("open database: %w", err), db.Close())
	}
	return db, nil
}

func (db *DB) connectPostgres(ctx context.Context, database string, limits Limits) error {
	config, err := pgxpool.ParseConfig(database)
	if err != nil {
		return err // pgx leaves the password out
	}
	if !hasParameter(database, "pool_max_conns") {
		config.MaxConns = postgresReaders
	}
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "exeunt"
	}
	config.ConnConfig.OnPgError = db.timeouts.counting(config.ConnConfig.OnPgError)
	config.ConnConfig.OnNotice = noticeUnconfirmed
	settings := noJIT + limits.settings(database)
	writers := config.Copy()
	writers.MaxConns = postgresWriters
	writers.AfterConnect = afterConnect(settings + noScan)
	if db.writePool, err = pgxpool.NewWithConfig(ctx, writers); err != nil {
		return err
	}
	config.AfterConnect = afterConnect(settings + "; SET default_transaction_read_only = on")
	if db.readPool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	db.writer = stdlib.OpenDBFromPool(db.writePool)
	db.reader = stdlib.OpenDBFromPool(db.readPool)
	return checkSessions(ctx, db.writePool, db.readPool)
}

// noJIT: our statements take well under a millisecond, and compiling one takes
// tens. The planner compiles statements that it estimates as expensive, and with
// old statistics its estimates are wrong.
const noJIT = "SET jit = off"

// noScan: a write finds its rows by indexes. The plans of its statements and triggers are
// made once, perhaps while a table is nearly empty, and a scan is then the cheapest plan. A
// restore fills the table again before the next ANALYZE, and would scan it for each row.
const noScan = "; SET enable_seqscan = off"

func afterConnect(settings string) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, settings)
		return err
	}
}

func hasParameter(database, name string) bool {
	u, err := url.Parse(database)
	return err == nil && u.Query().Has(name)
}

// Listen calls fn with the payload of each notification on a channel, and once
// with an empty payload when it has begun to listen. It returns when ctx ends
// or the connection breaks: then call it again, and assume that notifications were
// missed. On SQLite it only waits for ctx to end. While it listens, this process
// counts as alive: see presence.go.
func (db *DB) Listen(ctx context.Context, channel string, fn func(payload string)) error {
	if db.engine != Postgres {
		<-ctx.Done()
		return ctx.Err()
	}
	// Not a connection of the pool: it is held until ctx ends.
	conn, err := pgx.ConnectConfig(ctx, db.writePool.Config().ConnConfig)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	leave, err := db.holder.appear(ctx, conn)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer leave()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	fn("")
	for {
		notification, err := conn.WaitForNotification(ctx)
		if err != nil {
			return fmt.Errorf("listen: %w", err)
		}
		fn(notification.Payload)
	}
}

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

// Limits are time limits that PostgreSQL itself keeps, for every connection of the
// pools: the last defence, when a statement of ours, or a process that hangs, blocks
// others. Not positive: no limit. SQLite has none. A parameter of the same name in the
// database's URL wins. Migrations have no limits. NoSync is for SQLite only.
type Limits struct {
	// Statement limits one statement, with its waits for locks.
	Statement time.Duration
	// Lock limits one wait for a lock.
	Lock time.Duration
	// IdleTransaction limits how long a transaction may wait for its next statement.
	// PostgreSQL ends the connection then.
	IdleTransaction time.Duration
	// NoSync never waits for the disk: a power cut may lose the database.
	NoSync bool
}

// settings returns the statement that sets the limits, or "".
func (l Limits) settings(database string) string {
	var all strings.Builder
	for _, limit := range []struct {
		name  string
		value time.Duration
	}{{"statement_timeout", l.Statement}, {"lock_timeout", l.Lock}, {"idle_in_transaction_session_timeout", l.IdleTransaction}} {
		if limit.value > 0 && !hasParameter(database, limit.name) {
			fmt.Fprintf(&all, "; SET %s = %d", limit.name, max(1, limit.value.Milliseconds()))
		}
	}
	return all.String()
}

// noLimits lifts the limits, and noLimitsHere for the current transaction only.
const (
	noLimits     = `SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0`
	noLimitsHere = `SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0`
)

// PostgreSQL's codes of errors by a time limit.
const (
	codeStatementTimeout = "57014"
	codeLockTimeout      = "55P03"
	codeIdleTransaction  = "25P03"
)

// timeouts counts what the limits ended.
type timeouts struct {
	statement, lock, idle atomic.Int64
}

// Timeouts returns how often each limit has ended a statement or a connection of this
// process since Open.
func (db *DB) Timeouts() (statement, lock, idleTransaction int64) {
	return db.timeouts.statement.Load(), db.timeouts.lock.Load(), db.timeouts.idle.Load()
}

// counting wraps pgx's handler of errors from PostgreSQL. It costs nothing while there
// are none.
func (t *timeouts) counting(next pgconn.PgErrorHandler) pgconn.PgErrorHandler {
	return func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		switch err.Code {
		case codeStatementTimeout:
			t.statement.Add(1)
		case codeLockTimeout:
			t.lock.Add(1)
		case codeIdleTransaction:
			t.idle.Add(1)
		}
		return next(conn, err)
	}
}
