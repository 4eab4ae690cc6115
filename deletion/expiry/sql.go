package expiry

import "github.com/exeunt/exeunt/sqldb"

// All statements on the tables of policies.

const readPolicy = `
SELECT state, place, coalesce(walked_at, 0), waits <> 0, scope, selected, due, day, today, taken, coalesce(taken_at, 0), slot, in_slot
FROM expiry_policies WHERE uid = $1`

// lockKnown locks the row, so that two replicas do not take the same last object.
var lockKnown = map[sqldb.Engine]string{sqldb.SQLite: readPolicy, sqldb.Postgres: readPolicy + ` FOR UPDATE`}

const (
	countTaken = `
UPDATE expiry_policies SET today = CASE WHEN day = $3 THEN today ELSE 0 END + $2, day = $3, taken = taken + $2, taken_at = $4, waits = $5,
    in_slot = CASE WHEN slot = $6 THEN in_slot ELSE 0 END + $2, slot = $6
WHERE uid = $1`
	returnTaken = `UPDATE expiry_policies SET today = today - 1, taken = taken - 1 WHERE uid = $1 AND day = $2 AND today > 0`
	// enqueueStatus lets the status of a policy follow, in a while.
	enqueueStatus = `
INSERT INTO expiry_policy_reviews (uid, review_after, review_count, event, created_at) VALUES ($1, $2, 0, 'taken', $3)
ON CONFLICT (uid) DO UPDATE SET
    review_after = CASE WHEN excluded.review_after < expiry_policy_reviews.review_after THEN excluded.review_after ELSE expiry_policy_reviews.review_after END,
    claim_token = NULL, claim_until = NULL`

	// beginWalk begins to count another state of a policy.
	beginWalk = `
INSERT INTO expiry_policies (uid, state) VALUES ($1, $2)
ON CONFLICT (uid) DO UPDATE SET state = excluded.state, place = '', walked_at = NULL, scope = 0, selected = 0, due = 0, waits = 0
WHERE expiry_policies.state <> excluded.state`
	// stepWalk goes on to a place, unless another state or replica came first. $8 is when the walk ended, or 0.
	stepWalk = `
UPDATE expiry_policies SET place = $4, scope = scope + $5, selected = selected + $6, due = due + $7,
    walked_at = nullif(CAST($8 AS bigint), 0)
WHERE uid = $1 AND state = $2 AND place = $3 AND walked_at IS NULL RETURNING due, scope`
	setWaits     = `UPDATE expiry_policies SET waits = 1 WHERE uid = $1`
	forgetPolicy = `DELETE FROM expiry_policies WHERE uid = $1`
	// enqueueSelected takes the earlier time: a write may have enqueued the object by the same policy.
	enqueueSelected = `
INSERT INTO expiry_reviews (uid, review_after, review_count, event, created_at) VALUES ($1, $2, 0, 'policy', $3)
ON CONFLICT (uid) DO UPDATE SET
    review_after = CASE WHEN excluded.review_after < expiry_reviews.review_after THEN excluded.review_after ELSE expiry_reviews.review_after END,
    claim_token = NULL, claim_until = NULL`
)

// setAnnounced notes the time at which an object was said to expire. It returns no row if that was done.
const setAnnounced = `UPDATE expiry_reviews SET announced = $2 WHERE uid = $1 AND announced IS DISTINCT FROM $2 RETURNING uid`

// listRestored reads when objects were restored whose time was over.
var listRestored = sqldb.WithLists(`SELECT uid, created_at FROM expiry_reviews WHERE event = 'restored' AND uid IN LIST($1, text)`)

// lastError reads the failure of a review, and when the object was restored after its time.
const lastError = `SELECT coalesce(last_error, ''), CASE WHEN event = 'restored' THEN created_at ELSE 0 END FROM expiry_reviews WHERE uid = $1`
