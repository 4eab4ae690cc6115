package review

import (
	"strings"

	"github.com/exeunt/exeunt/sqldb"
)

// All statements of the package. New fills in only the names of the table, its
// key column and the least of two, {table}, {key} and {least}. The statements are the same on both engines,
// unless the name ends in SQLite or Postgres. A list of keys is an array on
// PostgreSQL and JSON on SQLite.
//
// On PostgreSQL a lateral subselect finds the rows of a list: OFFSET 0 keeps it a
// lookup in the primary key for each key, in the order of the list. Without it the
// planner reads the whole table for a few hundred keys of a queue of 100,000, four
// times per batch. The rows are then changed by their ctid; the token is checked
// again because rows may change in between.

// next is when the first unclaimed row can be claimed. It reads the index on
// review_after from its beginning and skips the claimed rows.
const next = `
SELECT review_after FROM {table}
WHERE claim_token IS NULL OR claim_until <= $1
ORDER BY review_after LIMIT 1`

// nextLease is when the first lease ends. It reads all due rows, so it runs only
// when all of them are claimed.
const nextLease = `
SELECT min(claim_until) FROM {table}
WHERE review_after <= $1 AND claim_token IS NOT NULL`

// claim claims due rows, in order, that are not claimed or whose lease has ended.
// On PostgreSQL it skips rows that others are claiming or hold; the subselect is
// an array, so that it runs exactly once, which IN does not guarantee.
const (
	claimSQLite = `
UPDATE {table} SET claim_token = $1, claim_until = $2
WHERE {key} IN (
    SELECT {key} FROM {table}
    WHERE review_after <= $3 AND (claim_token IS NULL OR claim_until <= $3)
    ORDER BY review_after LIMIT $4)
RETURNING {key}, event, review_count, created_at, review_after, coalesce(last_error, ''), coalesce(claim_until, 0), coalesce(traceparent, '')`
	claimPostgres = `
UPDATE {table} SET claim_token = $1, claim_until = $2
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {table}
    WHERE review_after <= $3 AND (claim_token IS NULL OR claim_until <= $3)
    ORDER BY review_after LIMIT $4
    FOR UPDATE SKIP LOCKED))
RETURNING {key}, event, review_count, created_at, review_after, coalesce(last_error, ''), coalesce(claim_until, 0), coalesce(traceparent, '')`
)

// hold returns the rows that still carry the token, and locks them against other
// engines until the transaction ends. On SQLite the transaction itself is the
// lock.
const (
	holdSQLite = `
SELECT {key} FROM {table}
WHERE {key} IN (SELECT value FROM json_each($1)) AND claim_token = $2`
	holdPostgres = `
SELECT held.{key} FROM unnest($1::text[]) AS list (key) CROSS JOIN LATERAL (
    SELECT q.{key} FROM {table} q WHERE q.{key} = list.key AND q.claim_token = $2
    OFFSET 0 FOR KEY SHARE) AS held`
)

// lockPostgres begins to settle: from here on enqueuers wait. The list is in key
// order; every transaction that locks several rows uses this order.
const lockPostgres = `
SELECT FROM unnest($1::text[]) AS list (key) CROSS JOIN LATERAL (
    SELECT FROM {table} q WHERE q.{key} = list.key AND q.claim_token = $2
    OFFSET 0 FOR UPDATE) AS held`

// remove settles tasks that are done, and postpone those with the verdict Again; extend gives the effects a new, full
// lease; release gives up claims. They change the rows {ours} of the list $1 that still carry the token $2, and the
// first three return them.
const (
	remove   = `DELETE FROM {table} WHERE {ours} RETURNING {key}`
	postpone = `
UPDATE {table} SET review_after = $3, review_count = 0, last_error = NULL, claim_token = NULL, claim_until = NULL
WHERE {ours} RETURNING {key}`
	extend  = `UPDATE {table} SET claim_until = $3 WHERE {ours} RETURNING {key}`
	release = `UPDATE {table} SET claim_token = NULL, claim_until = NULL WHERE {ours}`

	oursSQLite   = `{key} IN (SELECT value FROM json_each($1)) AND claim_token = $2`
	oursPostgres = `claim_token = $2 AND ctid = ANY (ARRAY(
    SELECT held.ctid FROM unnest($1::text[]) AS list (key) CROSS JOIN LATERAL (
        SELECT q.ctid FROM {table} q WHERE q.{key} = list.key AND q.claim_token = $2
        OFFSET 0) AS held))`
)

// fail settles one failure, and returns its row.
const fail = `
UPDATE {table} SET review_after = $3, review_count = review_count + 1, last_error = $4, claim_token = NULL, claim_until = NULL
WHERE {key} = $1 AND claim_token = $2
RETURNING {key}`

// tokens lists the tokens of claimed rows, one for each batch. Only due rows are
// ever claimed, so it does not read the rest of a long queue. disown gives up the
// claims of one token; it reads the whole table, and runs only after a process has
// died.
const (
	tokens = `SELECT DISTINCT claim_token FROM {table} WHERE review_after <= $1 AND claim_token IS NOT NULL`
	disown = `
UPDATE {table} SET claim_token = NULL, claim_until = NULL
WHERE claim_token = $1
RETURNING {key}`
)

// enqueue is the statement of the owners' triggers; see the package comment.
const enqueue = `
INSERT INTO {table} ({key}, review_after, review_count, event, created_at)
VALUES ($1, $2, 0, $3, $4)
ON CONFLICT ({key}) DO UPDATE SET
    review_after = {least}({table}.review_after, excluded.review_after),
    event = excluded.event, claim_token = NULL, claim_until = NULL`

// get reads one row by its key.
const get = `
SELECT {key}, event, review_count, created_at, review_after, coalesce(last_error, ''), coalesce(claim_until, 0), coalesce(traceparent, '')
FROM {table} WHERE {key} = $1`

// stats reads the whole table, once.
const stats = `
SELECT count(*),
       count(*) FILTER (WHERE review_after <= $1),
       count(*) FILTER (WHERE review_count > 0),
       count(*) FILTER (WHERE claim_token IS NOT NULL AND claim_until > $1),
       min(created_at), min(review_after)
FROM {table}`

// statements are the statements of one queue.
type statements struct {
	next, nextLease, claim, hold, remove, postpone, extend, release, fail, enqueue, get, stats, tokens, disown string

	lock string // empty if the transaction is the lock
}

func newStatements(engine sqldb.Engine, q Queue) statements {
	ours, least := oursSQLite, "min"
	if engine == sqldb.Postgres {
		ours, least = oursPostgres, "least"
	}
	names := strings.NewReplacer("{table}", q.Table, "{key}", q.Key, "{least}", least)
	fill := func(statement string) string { return names.Replace(strings.Replace(statement, "{ours}", ours, 1)) }
	s := statements{
		next: fill(next), nextLease: fill(nextLease), fail: fill(fail), get: fill(get), stats: fill(stats),
		tokens: fill(tokens), disown: fill(disown), remove: fill(remove), postpone: fill(postpone), extend: fill(extend), release: fill(release),
		claim: fill(claimSQLite), hold: fill(holdSQLite), enqueue: fill(enqueue),
	}
	if engine == sqldb.Postgres {
		s.claim, s.hold, s.lock = fill(claimPostgres), fill(holdPostgres), fill(lockPostgres)
	}
	return s
}
