package store

import "github.com/exeunt/exeunt/sqldb"

// All statements of the package. They are the same on both engines, unless the
// name ends in SQLite or Postgres. Both engines compare text by bytes.

// readRevision reads the one row.
const readRevision = `SELECT current, compacted FROM revision`

// lockRevision begins every write. On PostgreSQL the row's lock orders the
// writers of all processes, so commits happen in revision order, and a reader
// that sees revision n sees everything before n. What the transaction reads after
// the lock stays true until its commit. On SQLite the transaction itself is the
// lock.
const (
	lockRevisionSQLite   = `SELECT current, compacted, quotas, changed_at, moved, policies FROM revision`
	lockRevisionPostgres = `SELECT current, compacted, quotas, changed_at, moved, policies FROM revision FOR UPDATE`
)

// setRevision ends every write. $2 is how many bytes the write adds to the archive.
const setRevision = `UPDATE revision SET current = $1, archived = archived + $2, changed_at = $3`

// setQuotas notes that a write changed what a quota limits.
const setQuotas = `UPDATE revision SET quotas = $1`

// notifyPostgres notifies the other replicas when the transaction commits.
const notifyPostgres = `SELECT pg_notify('exeunt_changes', $1)`

// getObject finds an object by key: unique index, then two primary keys.
const getObject = `
SELECT o.uid, o.revision, c.body
FROM objects o JOIN changes c ON c.revision = o.revision
WHERE o.kind = $1 AND o.namespace = $2 AND o.name = $3`

// getHead is getObject without the body.
const getHead = `SELECT uid, revision FROM objects WHERE kind = $1 AND namespace = $2 AND name = $3`

// loadObject is getObject with the columns that a write needs.
const loadObject = `
SELECT o.id, o.uid, o.revision, o.deletion_time IS NOT NULL, coalesce(o.own_cascade, ''), c.body
FROM objects o JOIN changes c ON c.revision = o.revision
WHERE o.kind = $1 AND o.namespace = $2 AND o.name = $3`

const insertObject = `
INSERT INTO objects (id, uid, kind, namespace, name, revision, deletion_time, grace_seconds, finalizing, own_cascade)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`

// touchObject is updateObject for an object that is not being deleted, before and
// after: it sets no column that a trigger reads.
const touchObject = `UPDATE objects SET revision = $2, finalizing = $3 WHERE id = $1`

// updateObject keeps the actor that began the deletion: a second delete does not
// replace it. The update that marks the object remembers the body that it replaces. When a
// deletion is called off, the columns become NULL.
const updateObject = `
UPDATE objects SET revision = $2, deletion_time = $3, grace_seconds = $4, finalizing = $5,
    deletion_actor = CASE WHEN CAST($3 AS BIGINT) IS NULL THEN NULL ELSE coalesce(deletion_actor, $6) END,
    deletion_cascade = CASE WHEN CAST($3 AS BIGINT) IS NULL THEN NULL ELSE coalesce(deletion_cascade, $7, own_cascade) END,
    deletion_requester = CASE WHEN CAST($3 AS BIGINT) IS NULL THEN NULL ELSE coalesce(deletion_requester, $8) END,
    deletion_request_id = CASE WHEN CAST($3 AS BIGINT) IS NULL THEN NULL ELSE coalesce(deletion_request_id, $9) END,
    deletion_confirmer = CASE WHEN CAST($3 AS BIGINT) IS NULL THEN NULL ELSE deletion_confirmer END,
    asked_body = CASE WHEN CAST($3 AS BIGINT) IS NULL THEN NULL WHEN deletion_time IS NULL THEN revision ELSE asked_body END,
    asked_at = CASE WHEN CAST($3 AS BIGINT) IS NULL THEN NULL WHEN deletion_time IS NULL THEN $2 ELSE asked_at END
WHERE id = $1`

// confirmObject remembers who confirmed a deletion that the guard holds.
const confirmObject = `UPDATE objects SET deletion_confirmer = $2 WHERE id = $1`

// deleteObject: the schema also deletes the object's rows in owners.
const deleteObject = `DELETE FROM objects WHERE id = $1`

const insertChange = `
INSERT INTO changes (revision, object, uid, kind, namespace, name, type, previous, body, at, author) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`

// haveDependents uses the index on owners, for each uid. ORDER BY forces PostgreSQL to use it even if it expects that nearly
// every row matches, and OFFSET 0 keeps it from a join.
var haveDependents = sqldb.WithLists(`
SELECT list.value FROM LIST($1, text) AS list
WHERE EXISTS (SELECT 1 FROM owners w WHERE w.owner_uid >= list.value AND w.owner_uid <= list.value ORDER BY w.owner_uid LIMIT 1 OFFSET 0)`)

const insertOwner = `INSERT INTO owners (dependent, owner_uid, blocking, controller, owner_group, owner_kind, owner_name) VALUES ($1, $2, $3, $4, $5, $6, $7)`
const deleteOwners = `DELETE FROM owners WHERE dependent = $1`

// listHeads reads a run of heads after a point in order of (namespace, name),
// from the unique index, up to a namespace.
const listHeads = `
SELECT o.namespace, o.name, o.uid, o.revision
FROM objects o
WHERE o.kind = $1 AND (o.namespace, o.name) > ($2, $3) AND o.namespace <= $4
  AND ($5 = '' OR o.name = $5)
ORDER BY o.namespace, o.name
LIMIT $6`

// listHead is listHeads for one namespace and name.
const listHead = `
SELECT o.namespace, o.name, o.uid, o.revision
FROM objects o
WHERE o.kind = $1 AND (o.namespace, o.name) > ($2, $3) AND o.namespace = $4 AND o.name = $5
LIMIT $6`

// readBodies reads the bodies at some revisions: primary key.
var readBodies = sqldb.WithLists(`SELECT revision, body FROM changes WHERE revision IN LIST($1, bigint)`)

// listAt is the state as of an earlier revision, $6: the heads that have not
// changed since, and for each changed object the state that its first change
// after $6 replaced. The second half uses changes_kind_revision_idx and is read
// once per run.
const listAt = `
SELECT u.namespace, u.name, u.uid, u.revision
FROM (
    SELECT o.namespace, o.name, o.uid, o.revision
    FROM objects o
    WHERE o.kind = $1 AND (o.namespace, o.name) > ($2, $3) AND o.namespace <= $4
      AND ($5 = '' OR o.name = $5) AND o.revision <= $6
    UNION ALL
    SELECT h.namespace, h.name, h.uid, h.previous
    FROM changes h
    WHERE h.kind = $1 AND h.revision > $6 AND h.previous <= $6
      AND (h.namespace, h.name) > ($2, $3) AND h.namespace <= $4
      AND ($5 = '' OR h.name = $5)
) u
ORDER BY u.namespace, u.name
LIMIT $7`

// readLog reads the log in order, with the body before each change.
const readLog = `
SELECT c.revision, c.type, c.uid, c.kind, c.namespace, c.name, c.body, p.body
FROM changes c LEFT JOIN changes p ON p.revision = c.previous
WHERE c.revision > $1 AND c.revision <= $2
ORDER BY c.revision
LIMIT $3`

// readLogStart finds the revision behind which the bodies of the log have at most $3 bytes; $1 if all have.
const readLogStart = `
SELECT coalesce(max(revision), $1) FROM (
    SELECT revision, sum(octet_length(body)) OVER (ORDER BY revision DESC) AS total
    FROM changes WHERE revision > $1 AND revision <= $2
) newest WHERE total > $3`

// readLogOf is readLog for one watch. Index: changes_kind_revision_idx.
const readLogOf = `
SELECT c.revision, c.type, c.uid, c.kind, c.namespace, c.name, c.body, p.body
FROM changes c LEFT JOIN changes p ON p.revision = c.previous
WHERE c.revision > $1 AND c.revision <= $2 AND c.kind = $4
  AND ($5 = '' OR c.namespace = $5) AND ($6 = '' OR c.name = $6)
ORDER BY c.revision
LIMIT $3`

// compactBodies deletes the states that the changes in ($1, $2] replaced, except
// those that the archive has, or will have: the states of DELETING objects from
// before their deletion was asked for. An object that was DELETING has such a state
// behind an update, the others behind the tombstone, whose revision is the row's id. The
// subquery is complete before the first row is deleted.
const compactBodies = `
DELETE FROM changes WHERE revision IN (
    SELECT c.previous FROM changes c
    WHERE c.revision > $1 AND c.revision <= $2 AND c.previous IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM archive a WHERE a.id = c.revision AND a.body_revision = c.previous)
      AND (c.type = 3
        OR NOT EXISTS (SELECT 1 FROM archive a WHERE a.uid = c.uid AND a.body_revision = c.previous)
        AND NOT EXISTS (SELECT 1 FROM objects o WHERE o.id = c.object AND o.asked_body = c.previous)))`

// compactTombstones deletes the tombstones. It runs after compactBodies, which
// reads them.
const compactTombstones = `
DELETE FROM changes WHERE revision > $1 AND revision <= $2 AND type = 3`

// setCompacted: the log is without what was replaced up to $1, and lists and watches from before are refused.
const setCompacted = `UPDATE revision SET moved = $1, compacted = CASE WHEN compacted < $1 THEN $1 ELSE compacted END`

// The statements about the archive, the same on both engines.

// insertArchived archives the object $1, removed at revision $2; its head must
// still exist. The head's cause of deletion has precedence over the removal's
// ($4, $5, $8, $9). Without a cascade, the object's own is the cascade. The body is
// that from before the deletion was asked for.
const insertArchived = `
INSERT INTO archive (id, uid, kind, namespace, name, body_revision, removed_at, actor, cascade, size, requester, request_id, body_replaced, confirmer)
SELECT $2, o.uid, o.kind, CASE WHEN o.kind = 'namespaces' THEN o.name ELSE o.namespace END, o.name,
    CASE WHEN $7 THEN coalesce(o.asked_body, o.revision) END, $3, coalesce(o.deletion_actor, $4),
    coalesce(o.deletion_cascade, $5, o.own_cascade, o.uid), $6,
    coalesce(o.deletion_requester, $8), coalesce(o.deletion_request_id, $9), o.asked_at, o.deletion_confirmer
FROM objects o WHERE o.id = $1`

// The archive has an object once: the removal of restored objects, with the uids $1, removes the
// rows of their earlier removals, and the bodies that nothing else needs. It comes
// before their new rows are written.
var supersede = [...]map[sqldb.Engine]string{
	sqldb.WithLists(`
DELETE FROM changes WHERE revision IN (
    SELECT a.body_revision FROM archive a
    WHERE a.uid IN LIST($1, text) AND coalesce(a.body_replaced, a.id) <= (SELECT moved FROM revision))`),
	sqldb.WithLists(`UPDATE revision SET archived = archived - coalesce((SELECT sum(size) FROM archive WHERE uid IN LIST($1, text)), 0)`),
	sqldb.WithLists(`DELETE FROM archive WHERE uid IN LIST($1, text)`),
}

// restoredSince looks for the object $1, restored after revision $2. An object's id is the
// revision of its creation.
const restoredSince = `SELECT 1 FROM objects WHERE uid = $1 AND id > $2`

const (
	insertDropped = `
INSERT INTO dropped_references (owner_uid, dependent_uid, reference, known) VALUES ($1, $2, $3, $4)
ON CONFLICT (owner_uid, dependent_uid) DO NOTHING`
	deleteDropped = `DELETE FROM dropped_references WHERE dependent_uid = $1`
	// rememberDropped is insertDropped for an owner that exists or can be restored.
	rememberDropped = `
INSERT INTO dropped_references (owner_uid, dependent_uid, reference, known)
SELECT CAST($1 AS text), CAST($2 AS text), CAST($3 AS text), CAST($4 AS text)
WHERE EXISTS (SELECT 1 FROM archive a WHERE a.uid = $1) OR EXISTS (SELECT 1 FROM objects o WHERE o.uid = $1)
ON CONFLICT (owner_uid, dependent_uid) DO UPDATE SET reference = excluded.reference, known = excluded.known`
)

// cascadeDeleting and cascadeArchived return the cascade of an object that is
// being deleted or was removed, its requester and its request. Indexes: unique index on
// objects; archive_uid_idx.
const (
	cascadeDeleting = `
SELECT coalesce(deletion_cascade, uid), coalesce(deletion_requester, deletion_actor, ''), coalesce(deletion_request_id, '') FROM objects WHERE uid = $1`
	cascadeArchived = `
SELECT cascade, coalesce(requester, actor), coalesce(request_id, '') FROM archive WHERE uid = $1 ORDER BY id DESC LIMIT 1`
)

const (
	// restorable: the cascade of the row is not leaving.
	restorable = ` AND NOT EXISTS (SELECT 1 FROM archive_cascades l WHERE l.id = archive.cascade AND l.leaving >= archive.id)`
	heldBefore = `
ON CONFLICT (id) DO UPDATE SET restored_at = excluded.restored_at WHERE c.restored_at IS NULL OR c.restored_at < excluded.restored_at - 60000`
)

// holdCascades records when the cascades of rows were restored last, once a minute.
var holdCascades = map[sqldb.Engine]string{
	sqldb.SQLite: `
INSERT INTO archive_cascades AS c (id, restored_at)
SELECT DISTINCT a.cascade, $2 FROM json_each($1) j JOIN archive a ON a.id = j.value WHERE TRUE` + heldBefore,
	sqldb.Postgres: `
INSERT INTO archive_cascades AS c (id, restored_at)
SELECT DISTINCT a.cascade, $2::bigint FROM unnest($1::bigint[]) AS j (id) CROSS JOIN LATERAL (SELECT cascade FROM archive WHERE id = j.id OFFSET 0) AS a` + heldBefore,
}
