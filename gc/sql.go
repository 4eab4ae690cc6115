package gc

import "github.com/exeunt/exeunt/sqldb"

// The statements of the package. Those that differ are in statements.

// isOwner says whether the object d has dependents: one look into the index on
// owners. It is asked in a way that leaves PostgreSQL no other. Where nearly all
// references name one owner, it takes EXISTS for easy, and reads the primary key
// from end to end for each object.
const isOwner = `(SELECT TRUE FROM owners x
    WHERE x.owner_uid >= d.uid AND x.owner_uid <= d.uid ORDER BY x.owner_uid LIMIT 1) IS NOT NULL`

// The columns are those that session.query reads.
const (
	// objectByUID: unique index, then primary key.
	objectByUID = `
SELECT d.id, d.uid, d.kind, d.namespace, d.name, d.revision, coalesce(d.deletion_time, 0), d.finalizing,
    ` + isOwner + `, c.body
FROM objects d JOIN changes c ON c.revision = d.revision
WHERE d.uid = $1`

	// leavingOf is what is in a namespace, of one kind, and on its way out.
	leavingOf = `
SELECT d.id, d.uid, d.kind, d.namespace, d.name, d.revision, coalesce(d.deletion_time, 0), d.finalizing,
    ` + isOwner + `, c.body
FROM objects d JOIN changes c ON c.revision = d.revision
WHERE d.kind = $1 AND d.namespace = $2 AND d.deletion_time IS NOT NULL
ORDER BY d.name LIMIT $3`
)

// indexesOnly begins a review on PostgreSQL. Where most references name one
// owner, which is when it matters, the planner expects to find any owner's soon
// by reading the whole table.
const indexesOnly = `SET LOCAL enable_seqscan = off`

// statements are those that read objects page by page. On PostgreSQL they say in
// which order the tables are read: index, head, body. Left to itself the planner
// may go by statistics from when the tables were empty, read all objects for
// each page, and make a cascade quadratic.
type statements struct {
	// dependents is what refers to an owner ($1), in order of age after $2, but
	// for those on their way out already; allDependents is with those.
	dependents, allDependents string
	// contentOf is what is in a namespace ($2), of a kind ($1), after a name
	// ($3), but for what is on its way out already.
	contentOf string
}

func newStatements(engine sqldb.Engine) statements {
	if engine == sqldb.Postgres {
		return statements{dependents: dependentsPostgres, allDependents: allDependentsPostgres, contentOf: contentOfPostgres}
	}
	return statements{dependents: dependentsSQLite, allDependents: allDependentsSQLite, contentOf: contentOfSQLite}
}

const (
	dependentsSQLite = `
SELECT d.id, d.uid, d.kind, d.namespace, d.name, d.revision, coalesce(d.deletion_time, 0), d.finalizing,
    ` + isOwner + `, c.body
FROM owners w JOIN objects d ON d.id = w.dependent JOIN changes c ON c.revision = d.revision
WHERE w.owner_uid = $1 AND w.dependent > $2 AND d.deletion_time IS NULL
ORDER BY w.dependent LIMIT $3`
	dependentsPostgres = `
SELECT d.id, d.uid, d.kind, d.namespace, d.name, d.revision, coalesce(d.deletion_time, 0), d.finalizing, d.parent, c.body
FROM (SELECT dependent FROM owners WHERE owner_uid = $1 AND dependent > $2 ORDER BY dependent) AS w
CROSS JOIN LATERAL (
    SELECT d.*, ` + isOwner + ` AS parent
    FROM objects d WHERE d.id = w.dependent AND d.deletion_time IS NULL OFFSET 0) AS d
CROSS JOIN LATERAL (SELECT body FROM changes WHERE revision = d.revision OFFSET 0) AS c
ORDER BY w.dependent LIMIT $3`

	allDependentsSQLite = `
SELECT d.id, d.uid, d.kind, d.namespace, d.name, d.revision, coalesce(d.deletion_time, 0), d.finalizing,
    ` + isOwner + `, c.body
FROM owners w JOIN objects d ON d.id = w.dependent JOIN changes c ON c.revision = d.revision
WHERE w.owner_uid = $1 AND w.dependent > $2
ORDER BY w.dependent LIMIT $3`
	allDependentsPostgres = `
SELECT d.id, d.uid, d.kind, d.namespace, d.name, d.revision, coalesce(d.deletion_time, 0), d.finalizing, d.parent, c.body
FROM (SELECT dependent FROM owners WHERE owner_uid = $1 AND dependent > $2 ORDER BY dependent) AS w
CROSS JOIN LATERAL (
    SELECT d.*, ` + isOwner + ` AS parent
    FROM objects d WHERE d.id = w.dependent OFFSET 0) AS d
CROSS JOIN LATERAL (SELECT body FROM changes WHERE revision = d.revision OFFSET 0) AS c
ORDER BY w.dependent LIMIT $3`

	contentOfSQLite = `
SELECT d.id, d.uid, d.kind, d.namespace, d.name, d.revision, coalesce(d.deletion_time, 0), d.finalizing,
    ` + isOwner + `, c.body
FROM objects d JOIN changes c ON c.revision = d.revision
WHERE d.kind = $1 AND d.namespace = $2 AND d.name > $3 AND d.deletion_time IS NULL
ORDER BY d.name LIMIT $4`
	contentOfPostgres = `
SELECT d.id, d.uid, d.kind, d.namespace, d.name, d.revision, coalesce(d.deletion_time, 0), d.finalizing,
    ` + isOwner + `, c.body
FROM (SELECT * FROM objects WHERE kind = $1 AND namespace = $2 AND name > $3 AND deletion_time IS NULL ORDER BY name LIMIT $4) AS d
CROSS JOIN LATERAL (SELECT body FROM changes WHERE revision = d.revision OFFSET 0) AS c
ORDER BY d.name`
)

// ownerByUID is what Classify must know of an owner.
const ownerByUID = `SELECT namespace, coalesce(deletion_time, 0), finalizing FROM objects WHERE uid = $1`

// isBlocked says whether a dependent is left that blocks its owner. A
// cluster-scoped dependent of an owner in a namespace ($2) does not: such a
// reference is not resolved, and would block for ever.
const isBlocked = `
SELECT 1 FROM owners w JOIN objects d ON d.id = w.dependent
WHERE w.owner_uid = $1 AND w.blocking AND ($2 = '' OR d.namespace <> '') LIMIT 1`

// waitsForItself says whether an owner in foreground deletion is, through
// blocking dependents that are in foreground deletion too, its own dependent.
const waitsForItself = `
WITH RECURSIVE held (uid) AS (
    SELECT d.uid FROM owners w JOIN objects d ON d.id = w.dependent
    WHERE w.owner_uid = $1 AND w.blocking AND d.deletion_time IS NOT NULL AND d.finalizing & 2 <> 0
    UNION
    SELECT d.uid FROM held h JOIN owners w ON w.owner_uid = h.uid JOIN objects d ON d.id = w.dependent
    WHERE w.blocking AND d.deletion_time IS NOT NULL AND d.finalizing & 2 <> 0
)
SELECT 1 FROM held WHERE uid = $1 LIMIT 1`

// kindsStored lists the kinds that have objects by skipping through the unique
// index: as many steps as there are kinds.
const kindsStored = `
WITH RECURSIVE k (kind) AS (
    SELECT min(kind) FROM objects
    UNION ALL
    SELECT (SELECT min(kind) FROM objects o WHERE o.kind > k.kind) FROM k WHERE k.kind IS NOT NULL
)
SELECT kind FROM k WHERE kind IS NOT NULL`

// isIn says whether a kind has objects in a namespace, countOf how many.
const isIn = `SELECT 1 FROM objects WHERE kind = $1 AND namespace = $2 LIMIT 1`

const countOf = `SELECT count(*) FROM objects WHERE kind = $1 AND namespace = $2`

// settled takes a review back that was done in the transaction that caused it.
const settled = `DELETE FROM gc_object_reviews WHERE uid = $1`

// scanOwners is a page of the scanner's anti-join: the next owners that are
// referred to, each found by one step in the index on owners however many
// dependents it has, and whether it is missing.
const scanOwners = `
WITH RECURSIVE page (uid, place) AS (
    SELECT min(owner_uid), 1 FROM owners WHERE owner_uid > $1
    UNION ALL
    SELECT (SELECT min(w.owner_uid) FROM owners w WHERE w.owner_uid > p.uid), p.place + 1
    FROM page p WHERE p.uid IS NOT NULL AND p.place < $2
)
SELECT p.uid, NOT EXISTS (SELECT 1 FROM objects o WHERE o.uid = p.uid) FROM page p WHERE p.uid IS NOT NULL ORDER BY p.uid`

// scanDeleting is a page of what waits for the collector. objects_finalizing_idx.
const scanDeleting = `
SELECT uid, TRUE FROM objects WHERE deletion_time IS NOT NULL AND finalizing <> 0 AND uid > $1 ORDER BY uid LIMIT $2`

// scanEnqueue adds a review where there is none.
const scanEnqueue = `
INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at)
VALUES ($1, 0, 0, 'scan', $2)
ON CONFLICT (uid) DO NOTHING
RETURNING uid`

// failing lists reviews that failed last time, the most stubborn first.
const failing = `
SELECT q.uid, coalesce(o.kind, ''), coalesce(o.namespace, ''), coalesce(o.name, ''),
    q.event, q.review_count, q.review_after, coalesce(q.last_error, '')
FROM gc_object_reviews q LEFT JOIN objects o ON o.uid = q.uid
WHERE q.review_count > 0 ORDER BY q.review_count DESC, q.uid LIMIT $1`

const (
	readPaused  = `SELECT paused, reason FROM gc_state`
	writePaused = `UPDATE gc_state SET paused = $1, reason = $2`
)
