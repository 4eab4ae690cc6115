package sqldb

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// A process claims rows with a token and a lease, and can be killed. Other
// processes would then wait for the lease to end, and a lease is as long as the
// work can take. So a token names the process that made it, and Gone says which
// processes have ended.
//
// On PostgreSQL a process counts as alive while it holds an advisory lock, on the
// connection of Listen: when the process dies, the server closes that connection
// and releases the lock. A process that runs but has lost the connection counts
// as gone too, as if its lease had ended. If a database does not show our own
// lock (some have advisory locks in name only), Gone reports no process as gone.
// While the lock is not held, tokens name no process, and only leases end claims;
// the same holds when a machine vanishes without closing its connections.
//
// An SQLite database has one process at a time: all others are gone.

// The first of the two keys of the advisory locks: "exnt" for a process, "exnh" for what it has announced.
const (
	presence = 0x65786e74
	having   = 0x65786e68
)

// holder is this process: its id in tokens.
type holder struct {
	id      int32
	present atomic.Bool // the lock is held
	things  atomic.Pointer[[]string]
}

func (h *holder) init() {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	h.id = int32(binary.BigEndian.Uint32(b[:]) >> 1)
}

func (h *holder) String() string { return strconv.Itoa(int(h.id)) }

// appear takes the lock on a connection that is held until leave is called. If
// another process has the same id, or our last connection still holds the lock,
// the process goes on without it, and only leases end its claims.
func (h *holder) appear(ctx context.Context, conn *pgx.Conn) (leave func(), err error) {
	if things := h.things.Load(); things != nil {
		for _, thing := range *things { // before its own lock: a process that is seen has announced everything
			if _, err := conn.Exec(ctx, "SELECT pg_try_advisory_lock_shared($1, $2)", having, lockOf(thing)); err != nil {
				return nil, fmt.Errorf("announce what this process has: %w", err)
			}
		}
	}
	var got bool
	if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1, $2)", presence, h.id).Scan(&got); err != nil {
		return nil, fmt.Errorf("take the advisory lock of this process: %w", err)
	}
	if !got {
		return func() {}, nil
	}
	h.present.Store(true)
	return func() { h.present.Store(false) }, nil
}

// Announce says what this process has, for Lacking of all processes. It takes effect with the next Listen.
func (db *DB) Announce(things ...string) { db.holder.things.Store(&things) }

// Lacking counts the live processes that have not announced a thing. known is false before this process
// holds its own lock. A process that has just begun is not shown yet; a database with advisory locks in
// name only shows none.
func (db *DB) Lacking(ctx context.Context, thing string) (n int, known bool, err error) {
	if db.engine != Postgres {
		return 0, true, nil
	}
	known = db.holder.present.Load()
	if _, err := db.Row(ctx, countLacking, []any{presence, having, lockOf(thing)}, &n); err != nil {
		return 0, false, fmt.Errorf("list live processes: %w", err)
	}
	return n, known, nil
}

// lockOf is the second key of the lock that announces a thing. If two things have the same, a process counts
// as having both.
func lockOf(thing string) int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(thing)) // never fails
	return int32(h.Sum32() >> 1)
}

// Token makes a unique token for a claim. While this process holds its lock, the
// token names it.
func (db *DB) Token() string {
	if db.engine == Postgres && !db.holder.present.Load() {
		return rand.Text()
	}
	return db.holder.String() + "." + rand.Text()
}

// Gone returns the tokens whose processes have ended. On PostgreSQL a token that
// names no process is never among them.
func (db *DB) Gone(ctx context.Context, tokens []string) ([]string, error) {
	own := db.holder.String()
	if db.engine != Postgres {
		return slices.DeleteFunc(slices.Clone(tokens), func(token string) bool { return holderOf(token) == own }), nil
	}
	if !slices.ContainsFunc(tokens, func(token string) bool { h := holderOf(token); return h != "" && h != own }) {
		return nil, nil
	}
	alive, err := db.listPresent(ctx)
	if err != nil || !alive[own] {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(tokens), func(token string) bool {
		h := holderOf(token)
		return h == "" || alive[h]
	}), nil
}

// Process is the id of this process in Present.
func (db *DB) Process() string { return db.holder.String() }

// Present returns the processes that are alive. Nil if the database does not show them; then it
// does not show this process either.
func (db *DB) Present(ctx context.Context) (map[string]bool, error) {
	own := db.holder.String()
	if db.engine != Postgres {
		return map[string]bool{own: true}, nil
	}
	alive, err := db.listPresent(ctx)
	if err != nil || !alive[own] {
		return nil, err
	}
	return alive, nil
}

func (db *DB) listPresent(ctx context.Context) (map[string]bool, error) {
	ids, err := Column[string](ctx, db, present, presence)
	if err != nil {
		return nil, fmt.Errorf("list live processes: %w", err)
	}
	alive := map[string]bool{}
	for _, id := range ids {
		alive[id] = true
	}
	return alive, nil
}

// present lists the processes that hold their lock in this database.
const present = `
SELECT objid::text FROM pg_locks
WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid = $1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

const countLacking = `
SELECT count(*) FILTER (WHERE NOT EXISTS (
    SELECT FROM pg_locks h WHERE h.pid = p.pid AND h.locktype = 'advisory' AND h.granted AND h.objsubid = 2
        AND h.classid = $2 AND h.objid = $3 AND h.database = p.database))
FROM pg_locks p
WHERE p.locktype = 'advisory' AND p.granted AND p.objsubid = 2 AND p.classid = $1
    AND p.database = (SELECT oid FROM pg_database WHERE datname = current_database())`

// holderOf is the process that a token names, or "".
func holderOf(token string) string {
	h, _, found := strings.Cut(token, ".")
	if !found {
		return ""
	}
	return h
}
