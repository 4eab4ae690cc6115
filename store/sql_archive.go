package store

import "github.com/exeunt/exeunt/sqldb"

// The statements about the archive, the same on both engines.

// insertArchived archives the object $1, removed at revision $2; its head must
// still exist. The head's cause of deletion has precedence over the removal's
// ($4, $5, $8, $9). Without a cascade, the object's own is the cascade. The body is
// that from before the deletion was asked for.
const insertArchived = `
INSERT INTO archive (id, uid, kind, namespace, name, body_revision, removed_at, actor, cascade, size, requester, request_id, body_replaced)
SELECT $2, o.uid, o.kind, CASE WHEN o.kind = 'namespaces' THEN o.name ELSE o.namespace END, o.name,
    CASE WHEN $7 THEN coalesce(o.asked_body, o.revision) END, $3, coalesce(o.deletion_actor, $4),
    coalesce(o.deletion_cascade, $5, o.own_cascade, o.uid), $6,
    coalesce(o.deletion_requester, $8), coalesce(o.deletion_request_id, $9), o.asked_at
FROM objects o WHERE o.id = $1`

// The archive has an object once: the removal of restored objects, with the uids $1, removes the
// rows of their earlier removals, and the bodies that nothing else needs. It comes
// before their new rows are written.
var supersede = [...]map[sqldb.Engine]string{
	sqldb.WithLists(`
DELETE FROM changes WHERE revision IN (
    SELECT a.body_revision FROM archive a
    WHERE a.uid IN LIST($1, text) AND coalesce(a.body_replaced, a.id) <= (SELECT compacted FROM revision))`),
	sqldb.WithLists(`UPDATE revision SET archived = archived - coalesce((SELECT sum(size) FROM archive WHERE uid IN LIST($1, text)), 0)`),
	sqldb.WithLists(`DELETE FROM archive WHERE uid IN LIST($1, text)`),
}

// markRestored records the restored object's uid in the row, if it still exists,
// and returns whether dropped references to its object exist.
const markRestored = `
UPDATE archive SET restored_as = $2 WHERE id = $1` + restorable + `
RETURNING EXISTS (SELECT 1 FROM dropped_references d WHERE d.owner_uid = archive.uid)`

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
	// holdCascade records when the cascade of a row was restored last, once a minute.
	holdCascade = `
INSERT INTO archive_cascades AS c (id, restored_at) SELECT cascade, CAST($2 AS bigint) FROM archive WHERE id = $1` + heldBefore
	heldBefore = `
ON CONFLICT (id) DO UPDATE SET restored_at = excluded.restored_at WHERE c.restored_at IS NULL OR c.restored_at < excluded.restored_at - 60000`
)

// holdCascades is holdCascade for many.
var holdCascades = map[sqldb.Engine]string{
	sqldb.SQLite: `
INSERT INTO archive_cascades AS c (id, restored_at)
SELECT DISTINCT a.cascade, $2 FROM json_each($1) j JOIN archive a ON a.id = j.value WHERE TRUE` + heldBefore,
	sqldb.Postgres: `
INSERT INTO archive_cascades AS c (id, restored_at)
SELECT DISTINCT a.cascade, $2::bigint FROM unnest($1::bigint[]) AS j (id) CROSS JOIN LATERAL (SELECT cascade FROM archive WHERE id = j.id OFFSET 0) AS a` + heldBefore,
}
