package archive

// All statements of the package, the same on both engines. Each reads the
// columns that query scans, of archive a and changes c.

const columns = `a.id, a.uid, a.kind, a.namespace, a.name, a.removed_at, a.actor, coalesce(a.requester, a.actor), a.cascade, a.size,
    coalesce(a.body_revision, 0), c.body`

// listArchived is a page of the archive, the newest removal first, by the primary
// key in descending order. An empty condition matches all rows.
const listArchived = `
SELECT ` + columns + `
FROM archive a LEFT JOIN changes c ON c.revision = a.body_revision
WHERE a.id < $1
  AND ($2 = '' OR a.namespace = $2) AND ($3 = '' OR a.kind = $3) AND ($4 = '' OR a.name = $4) AND ($5 = '' OR a.actor = $5)
  AND ($6 = '' OR coalesce(a.requester, a.actor) = $6)
ORDER BY a.id DESC LIMIT $7`

// listCascade is listArchived for one cascade, by archive_cascade_idx, and
// archive_uid_idx for the root object.
const listCascade = `
SELECT ` + columns + `
FROM (
    SELECT * FROM archive WHERE cascade = $7 AND cascade <> uid
    UNION ALL
    SELECT * FROM archive WHERE uid = $7 AND cascade = uid
) a LEFT JOIN changes c ON c.revision = a.body_revision
WHERE a.id < $1
  AND ($2 = '' OR a.namespace = $2) AND ($3 = '' OR a.kind = $3) AND ($4 = '' OR a.name = $4) AND ($5 = '' OR a.actor = $5)
  AND ($6 = '' OR coalesce(a.requester, a.actor) = $6)
ORDER BY a.id DESC LIMIT $8`

// archivedByUID: archive_uid_idx.
const archivedByUID = `
SELECT ` + columns + `
FROM archive a LEFT JOIN changes c ON c.revision = a.body_revision
WHERE a.uid = $1 ORDER BY a.id DESC LIMIT 1`

// archivedByID: primary key.
const archivedByID = `
SELECT ` + columns + `
FROM archive a LEFT JOIN changes c ON c.revision = a.body_revision
WHERE a.id = $1`

// wasArchived: archive_uid_idx.
const wasArchived = `SELECT 1 FROM archive WHERE uid = $1 LIMIT 1`

// kindArchived scans the archive if there is no such row.
const kindArchived = `SELECT 1 FROM archive WHERE kind = $1 LIMIT 1`

// listKinds is the kinds whose definition was removed. They are few.
const listKinds = `
SELECT storage, definition, api_group, api_version, kind, plural, singular, short_names, namespaced FROM archive_kinds`

// liveByUID finds an object that can own others: it is not DELETING, or the guard
// holds its deletion. It uses the unique index on objects.uid.
const liveByUID = `
SELECT kind, namespace, name FROM objects WHERE uid = $1 AND (deletion_time IS NULL OR finalizing & 16 <> 0)`

// restoredAs is the uid that an archived object was last restored as, by
// archive_uid_idx.
const restoredAs = `SELECT coalesce(restored_as, '') FROM archive WHERE uid = $1 ORDER BY id DESC LIMIT 1`

// countLeft counts the names in a cascade that have no restored object, except row
// $2. It uses archive_cascade_idx, and the unique index on objects.uid for each
// row.
const countLeft = `
SELECT count(*) FROM (
    SELECT a.kind, a.namespace, a.name FROM (
        SELECT * FROM archive WHERE cascade = $1 AND cascade <> uid
        UNION ALL
        SELECT * FROM archive WHERE uid = $1 AND cascade = uid
    ) a LEFT JOIN objects o ON o.uid = a.restored_as
    GROUP BY a.kind, a.namespace, a.name
    HAVING count(o.id) = 0 AND max(CASE WHEN a.id = $2 THEN 1 ELSE 0 END) = 0
) AS names`

// droppedFor is the references that wait for an owner, with their dependents.
// Dependents that are gone or DELETING are left out.
const droppedFor = `
SELECT o.id, o.uid, o.kind, o.namespace, o.name, o.revision, c.body, d.reference, d.known
FROM dropped_references d JOIN objects o ON o.uid = d.dependent_uid JOIN changes c ON c.revision = o.revision
WHERE d.owner_uid = $1 AND o.deletion_time IS NULL
ORDER BY d.dependent_uid LIMIT $2`

const anyDroppedFor = `SELECT 1 FROM dropped_references WHERE owner_uid = $1 LIMIT 1`

// droppedBy is the references that an object was restored without.
const droppedBy = `SELECT reference, known FROM dropped_references WHERE dependent_uid = $1 ORDER BY owner_uid`

// settleDropped deletes a reference, for all uids that its owner had; learnDropped
// updates the known owners.
const (
	settleDropped = `DELETE FROM dropped_references WHERE dependent_uid = $1 AND reference = $2`
	learnDropped  = `UPDATE dropped_references SET known = $2 WHERE dependent_uid = $1`
)

// An object that the guard holds is DELETING with store.FinalizeConfirm (16) set in
// finalizing.
const (
	heldByUID      = `SELECT uid FROM objects WHERE uid = $1 AND deletion_time IS NOT NULL AND finalizing & 16 <> 0`
	heldByKey      = `SELECT uid FROM objects WHERE kind = $1 AND namespace = $2 AND name = $3 AND deletion_time IS NOT NULL AND finalizing & 16 <> 0`
	readHeldObject = `
SELECT o.id, o.kind, o.namespace, o.name, o.revision, c.body
FROM objects o JOIN changes c ON c.revision = o.revision
WHERE o.uid = $1 AND o.deletion_time IS NOT NULL AND o.finalizing & 16 <> 0`
)
