package archive

// All statements of the package, the same on both engines. Each reads the
// columns that scanRow takes, of archive a and changes c.

// listArchived is a page of the archive, the newest removal first: downwards
// through the primary key. An empty filter lets everything through.
const listArchived = `
SELECT a.id, a.uid, a.kind, a.namespace, a.name, a.removed_at, a.actor, a.cascade, a.size, coalesce(a.body_revision, 0), c.body
FROM archive a LEFT JOIN changes c ON c.revision = a.body_revision
WHERE a.id < $1
  AND ($2 = '' OR a.namespace = $2) AND ($3 = '' OR a.kind = $3) AND ($4 = '' OR a.name = $4) AND ($5 = '' OR a.actor = $5)
ORDER BY a.id DESC LIMIT $6`

// listCascade is listArchived for one cascade: archive_cascade_idx, and
// archive_uid_idx for the object that the cascade is named after.
const listCascade = `
SELECT a.id, a.uid, a.kind, a.namespace, a.name, a.removed_at, a.actor, a.cascade, a.size, coalesce(a.body_revision, 0), c.body
FROM (
    SELECT * FROM archive WHERE cascade = $6 AND cascade <> uid
    UNION ALL
    SELECT * FROM archive WHERE uid = $6 AND cascade = uid
) a LEFT JOIN changes c ON c.revision = a.body_revision
WHERE a.id < $1
  AND ($2 = '' OR a.namespace = $2) AND ($3 = '' OR a.kind = $3) AND ($4 = '' OR a.name = $4) AND ($5 = '' OR a.actor = $5)
ORDER BY a.id DESC LIMIT $7`

// archivedByUID: archive_uid_idx.
const archivedByUID = `
SELECT a.id, a.uid, a.kind, a.namespace, a.name, a.removed_at, a.actor, a.cascade, a.size, coalesce(a.body_revision, 0), c.body
FROM archive a LEFT JOIN changes c ON c.revision = a.body_revision
WHERE a.uid = $1 ORDER BY a.id DESC LIMIT 1`

// archivedByID: primary key.
const archivedByID = `
SELECT a.id, a.uid, a.kind, a.namespace, a.name, a.removed_at, a.actor, a.cascade, a.size, coalesce(a.body_revision, 0), c.body
FROM archive a LEFT JOIN changes c ON c.revision = a.body_revision
WHERE a.id = $1`

// wasArchived: archive_uid_idx.
const wasArchived = `SELECT 1 FROM archive WHERE uid = $1 LIMIT 1`

// liveByUID tells whether an object exists, where, and whether it is DELETING.
// The unique index on objects.uid.
const liveByUID = `SELECT namespace, deletion_time IS NOT NULL FROM objects WHERE uid = $1`

// What the guard holds is DELETING with its bit set in finalizing.
const (
	heldByUID      = `SELECT uid FROM objects WHERE uid = $1 AND deletion_time IS NOT NULL AND finalizing & 16 <> 0`
	heldByKey      = `SELECT uid FROM objects WHERE kind = $1 AND namespace = $2 AND name = $3 AND deletion_time IS NOT NULL AND finalizing & 16 <> 0`
	readHeldObject = `
SELECT o.id, o.kind, o.namespace, o.name, o.revision, c.body
FROM objects o JOIN changes c ON c.revision = o.revision
WHERE o.uid = $1 AND o.deletion_time IS NOT NULL AND o.finalizing & 16 <> 0`
)
