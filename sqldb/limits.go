package sqldb

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Limits are time limits that PostgreSQL itself keeps, for every connection of the
// pools: the last defence, when a statement of ours, or a process that hangs, blocks
// others. Not positive: no limit. SQLite has none. A parameter of the same name in the
// database's URL wins. Migrations have no limits.
type Limits struct {
	// Statement limits one statement, with its waits for locks.
	Statement time.Duration
	// Lock limits one wait for a lock.
	Lock time.Duration
	// IdleTransaction limits how long a transaction may wait for its next statement.
	// PostgreSQL ends the connection then.
	IdleTransaction time.Duration
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
