package gc

import "github.com/exeunt/exeunt/sqldb"

// The statements of the package. The type statements holds those that differ
// between the engines.

// isOwner says whether the object d has dependents, by one read of the index on
// owners. The form leaves PostgreSQL no other plan. With EXISTS, where nearly all
// references name one owner, the planner expects an early hit and reads the whole
// primary key for each object.
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

	// newestDependents is the newest dependents of an owner that are not DELETING.
	newestDependents = `
SELECT d.id, d.uid, d.kind, d.namespace, d.name, d.revision, coalesce(d.deletion_time, 0), d.finalizing,
    ` + isOwner + `, c.body
FROM owners w JOIN objects d ON d.id = w.dependent JOIN changes c ON c.revision = d.revision
WHERE w.owner_uid = $1 AND d.deletion_time IS NULL
ORDER BY w.dependent DESC LIMIT $2`

	// leavingOf is the DELETING objects of a kind in a namespace.
	leavingOf = `
SELECT d.id, d.uid, d.kind, d.namespace, d.name, d.revision, coalesce(d.deletion_time, 0), d.finalizing,
    ` + isOwner + `, c.body
FROM objects d JOIN changes c ON c.revision = d.revision
WHERE d.kind = $1 AND d.namespace = $2 AND d.deletion_time IS NOT NULL
ORDER BY d.name LIMIT $3`
)

// indexesOnly begins a review on PostgreSQL. Where most references name one
// owner, the planner would read the whole table: it expects to find the
// references of any owner soon.
const indexesOnly = `SET LOCAL enable_seqscan = off`

// statements read objects page by page. On PostgreSQL they fix the order in which
// the tables are read: index, head, body. Without it the planner may use
// statistics of empty tables and read all objects for each page, which makes a
// cascade quadratic.
type statements struct {
	// dependents is the dependents of an owner ($1) with an id above $2 that are
	// not DELETING; allDependents includes the DELETING ones.
	dependents, allDependents string
	// contentOf is the objects of a kind ($1) in a namespace ($2), after a name
	// ($3), that are not DELETING.
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

// ownerByUID is the input of Classify for one owner.
const ownerByUID = `SELECT kind, namespace, name, coalesce(deletion_time, 0), finalizing FROM objects WHERE uid = $1`

// The events of reviews of a removed owner, namespaced and cluster-scoped. The
// triggers write them, and later events of the row do not replace them: they
// prove the removal, also when the archive is off.
const (
	ownerRemoved        = "owner_removed"
	clusterOwnerRemoved = "cluster_owner_removed"
)

// removedOwner says that this server removed an object with a uid, and whether
// it was in a namespace.
const removedOwner = `
SELECT namespace <> '' FROM archive WHERE uid = $1
UNION ALL
SELECT event = 'owner_removed' FROM gc_object_reviews WHERE uid = $1 AND event IN ('owner_removed', 'cluster_owner_removed')
LIMIT 1`

// kindsReferred is the kinds in the references to a uid, by the index on owners.
const kindsReferred = `SELECT DISTINCT owner_group, owner_kind FROM owners WHERE owner_uid = $1`

// isBlocked says whether a dependent blocks its owner with uid $1, in namespace
// $2. The reference has name $3, group $4 and kind $5 (empty: any).
const isBlocked = `
SELECT 1 FROM owners w JOIN objects d ON d.id = w.dependent
WHERE w.owner_uid = $1 AND w.blocking AND ($2 = '' OR d.namespace <> '')
    AND w.owner_name = $3 AND w.owner_group = $4 AND ($5 = '' OR w.owner_kind = $5) LIMIT 1`

// waitingBlockers is the blocking dependents that are in foreground deletion.
const waitingBlockers = `
SELECT d.uid, d.kind, d.namespace, d.name FROM owners w JOIN objects d ON d.id = w.dependent
WHERE w.owner_uid = $1 AND w.blocking AND ($2 = '' OR d.namespace <> '')
    AND w.owner_name = $3 AND w.owner_group = $4 AND ($5 = '' OR w.owner_kind = $5)
    AND d.deletion_time IS NOT NULL AND d.finalizing & 2 <> 0`

// maxUnknownReports bounds the dependents of an owner of an unserved kind that one
// review reports.
const maxUnknownReports = 20

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

// settled deletes a review that was done in the transaction that caused it.
const settled = `DELETE FROM gc_object_reviews WHERE uid = $1`

// scanOwners is a page of all references, in order of dependent and owner, with
// the input of Classify for each. It uses the primary key, then one read of each
// of the two objects.
const scanOwners = `
SELECT w.dependent, w.owner_uid, w.owner_group, w.owner_kind, w.owner_name, d.uid, d.namespace, d.deletion_time IS NOT NULL,
    o.uid IS NOT NULL, coalesce(o.kind, ''), coalesce(o.namespace, ''), coalesce(o.name, ''),
    coalesce(o.deletion_time, 0), coalesce(o.finalizing, 0)
FROM (SELECT * FROM owners WHERE (dependent, owner_uid) > ($1, $2) ORDER BY dependent, owner_uid LIMIT $3) AS w
    JOIN objects d ON d.id = w.dependent LEFT JOIN objects o ON o.uid = w.owner_uid
ORDER BY w.dependent, w.owner_uid`

// scanDeleting is a page of the objects that wait for the collector, by
// objects_finalizing_idx.
const scanDeleting = `
SELECT uid FROM objects WHERE deletion_time IS NOT NULL AND finalizing <> 0 AND uid > $1 ORDER BY uid LIMIT $2`

// scanEnqueue adds a review if the uid has none.
const scanEnqueue = `
INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at)
VALUES ($1, 0, 0, 'scan', $2)
ON CONFLICT (uid) DO NOTHING
RETURNING uid`

// failing lists reviews that failed last time, those with the most attempts first.
const failing = `
SELECT q.uid, coalesce(o.kind, ''), coalesce(o.namespace, ''), coalesce(o.name, ''),
    q.event, q.review_count, q.review_after, coalesce(q.last_error, '')
FROM gc_object_reviews q LEFT JOIN objects o ON o.uid = q.uid
WHERE q.review_count > 0 ORDER BY q.review_count DESC, q.uid LIMIT $1`

const (
	readPaused  = `SELECT paused, reason FROM gc_state`
	writePaused = `UPDATE gc_state SET paused = $1, reason = $2`
)
