package sqldb

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// Whoever marks rows as their own work, with a token and a lease, can be killed.
// Then others would have to wait for the lease to end, which has to be as long
// as the work can take. So a token names the process that made it, and a
// database can be asked which processes are gone.
//
// On PostgreSQL a process is there while it holds an advisory lock, which it
// takes on the connection that Listen holds: the server closes that connection
// when the process dies, and the lock goes with it. A process that is alive but
// has lost the connection counts as gone too, as one does whose lease has ended.
// A database that does not show our own lock (some have advisory locks in name
// only) is not believed about others. Where the lock is not held no token names
// us, and leases are all there is, as they are when a machine vanishes without
// closing its connections.
//
// An SQLite database has one process at a time: all others are gone.

// presence is the first of the two keys of the advisory locks: "exnt".
const presence = 0x65786e74

// holder is this process, as tokens name it.
type holder struct {
	id      int32
	present atomic.Bool // the lock is held
}

func (h *holder) init() {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	h.id = int32(binary.BigEndian.Uint32(b[:]) >> 1)
}

func (h *holder) String() string { return strconv.Itoa(int(h.id)) }

// appear takes the lock on a connection that is held until leave is called. That
// somebody else has the number, or that our last connection still holds it, costs
// nothing but time.
func (h *holder) appear(ctx context.Context, conn *pgx.Conn) (leave func(), err error) {
	var got bool
	if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1, $2)", presence, h.id).Scan(&got); err != nil {
		return nil, fmt.Errorf("take the lock that says that this process is there: %w", err)
	}
	if !got {
		return func() {}, nil
	}
	h.present.Store(true)
	return func() { h.present.Store(false) }, nil
}

// Token makes a token for a claim: no two are the same, and Gone knows which are
// this process's.
func (db *DB) Token() string {
	if db.engine == Postgres && !db.holder.present.Load() {
		return rand.Text()
	}
	return db.holder.String() + "." + rand.Text()
}

// Gone says which of some tokens were made by processes that are not there any
// more. Of a token that names nobody that is not known.
func (db *DB) Gone(ctx context.Context, tokens []string) ([]string, error) {
	own := db.holder.String()
	if db.engine != Postgres {
		return slices.DeleteFunc(slices.Clone(tokens), func(token string) bool { return holderOf(token) == own }), nil
	}
	if !slices.ContainsFunc(tokens, func(token string) bool { h := holderOf(token); return h != "" && h != own }) {
		return nil, nil
	}
	there := map[string]bool{}
	rows, err := db.reader.QueryContext(ctx, present, presence)
	if err != nil {
		return nil, fmt.Errorf("ask who is there: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, fmt.Errorf("ask who is there: %w", err)
		}
		there[id] = true
	}
	if err := rows.Err(); err != nil || !there[own] {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(tokens), func(token string) bool {
		h := holderOf(token)
		return h == "" || there[h]
	}), nil
}

// present lists the second keys of our locks that are held in this database.
const present = `
SELECT objid::text FROM pg_locks
WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid = $1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

// holderOf is the process that a token names, or nobody.
func holderOf(token string) string {
	h, _, found := strings.Cut(token, ".")
	if !found {
		return ""
	}
	return h
}
