package gc

// All statements of the package, the same on both engines.

// columns are those that scanStored reads, of objects d and changes c.
const (
	// objectByUID: unique index, then primary key.
	objectByUID = `
SELECT d.id, d.uid, d.kind, d.namespace, d.name, d.revision, coalesce(d.deletion_time, 0), d.finalizing, c.body
FROM objects d JOIN changes c ON c.revision = d.revision
WHERE d.uid = $1`

	// dependents streams what refers to an owner, in order of age, from the
	// index on owners; those on their way out already are left out.
	dependents = `
SELECT d.id, d.uid, d.kind, d.namespace, d.name, d.revision, coalesce(d.deletion_time, 0), d.finalizing, c.body
FROM owners w JOIN objects d ON d.id = w.dependent JOIN changes c ON c.revision = d.revision
WHERE w.owner_uid = $1 AND w.dependent > $2 AND d.deletion_time IS NULL
ORDER BY w.dependent LIMIT $3`

	// allDependents is dependents with those on their way out.
	allDependents = `
SELECT d.id, d.uid, d.kind, d.namespace, d.name, d.revision, coalesce(d.deletion_time, 0), d.finalizing, c.body
FROM owners w JOIN objects d ON d.id = w.dependent JOIN changes c ON c.revision = d.revision
WHERE w.owner_uid = $1 AND w.dependent > $2
ORDER BY w.dependent LIMIT $3`

	// contentOf is what is in a namespace, of one kind.
	contentOf = `
SELECT d.id, d.uid, d.kind, d.namespace, d.name, d.revision, coalesce(d.deletion_time, 0), d.finalizing, c.body
FROM objects d JOIN changes c ON c.revision = d.revision
WHERE d.kind = $1 AND d.namespace = $2 AND d.deletion_time IS NULL
ORDER BY d.name LIMIT $3`

	// leavingOf is the same for what is on its way out.
	leavingOf = `
SELECT d.id, d.uid, d.kind, d.namespace, d.name, d.revision, coalesce(d.deletion_time, 0), d.finalizing, c.body
FROM objects d JOIN changes c ON c.revision = d.revision
WHERE d.kind = $1 AND d.namespace = $2 AND d.deletion_time IS NOT NULL
ORDER BY d.name LIMIT $3`
)

// ownerByUID is what Classify must know of an owner.
const ownerByUID = `SELECT namespace, coalesce(deletion_time, 0), finalizing FROM objects WHERE uid = $1`

// hasDependents and isBlocked are answered by the index on owners.
const (
	hasDependents = `SELECT 1 FROM owners WHERE owner_uid = $1 LIMIT 1`
	isBlocked     = `SELECT 1 FROM owners WHERE owner_uid = $1 AND blocking LIMIT 1`
)

// waitsForItself says whether an owner in foreground deletion is, through
// blocking dependents that wait likewise, its own dependent.
const waitsForItself = `
WITH RECURSIVE held (uid) AS (
    SELECT d.uid FROM owners w JOIN objects d ON d.id = w.dependent
    WHERE w.owner_uid = $1 AND w.blocking AND d.deletion_time IS NOT NULL
    UNION
    SELECT d.uid FROM held h JOIN owners w ON w.owner_uid = h.uid JOIN objects d ON d.id = w.dependent
    WHERE w.blocking AND d.deletion_time IS NOT NULL
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

// countOf counts a kind's objects in a namespace.
const countOf = `SELECT count(*) FROM objects WHERE kind = $1 AND namespace = $2`

// followUp tells whether the removal of an object put it under review: then it
// had dependents.
const followUp = `SELECT 1 FROM gc_object_reviews WHERE uid = $1 AND event = 'owner_removed'`

// settled takes a review back that was done in the transaction that caused it.
const settled = `DELETE FROM gc_object_reviews WHERE uid = $1`

// scanReviews is the scanner.
const scanReviews = `
INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at)
SELECT DISTINCT w.owner_uid, 0, 0, 'scan', $1 FROM owners w
WHERE NOT EXISTS (SELECT 1 FROM objects o WHERE o.uid = w.owner_uid)
UNION
SELECT o.uid, 0, 0, 'scan', $1 FROM objects o WHERE o.deletion_time IS NOT NULL AND o.finalizing <> 0
ON CONFLICT (uid) DO NOTHING
RETURNING uid`

const (
	readPaused  = `SELECT paused, reason FROM gc_state`
	writePaused = `UPDATE gc_state SET paused = $1, reason = $2`
)
