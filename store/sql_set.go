package store

// The statements that remove many objects at once. $1 is their ids, as JSON on
// SQLite and as an array on PostgreSQL; the first of them is removed at revision
// $2, the others follow. They read the heads, so deleteSet comes last.

// archiveSet is insertArchived for many.
const (
	archiveSetSQLite = `
INSERT INTO archive (id, uid, kind, namespace, name, body_revision, removed_at, actor, cascade, size)
SELECT $2 + j.key, o.uid, o.kind, CASE WHEN o.kind = 'namespaces' THEN o.name ELSE o.namespace END, o.name,
    CASE WHEN $6 OR o.kind <> 'secrets' THEN o.revision END, $3,
    coalesce(o.deletion_actor, $4), coalesce(o.deletion_cascade, CASE WHEN o.deletion_time IS NULL THEN $5 END, o.uid),
    CASE WHEN $6 OR o.kind <> 'secrets' THEN octet_length(c.body) ELSE 0 END
FROM json_each($1) j JOIN objects o ON o.id = j.value JOIN changes c ON c.revision = o.revision
WHERE o.kind <> 'events'`
	archiveSetPostgres = `
INSERT INTO archive (id, uid, kind, namespace, name, body_revision, removed_at, actor, cascade, size)
SELECT $2 + j.place - 1, o.uid, o.kind, CASE WHEN o.kind = 'namespaces' THEN o.name ELSE o.namespace END, o.name,
    CASE WHEN $6 OR o.kind <> 'secrets' THEN o.revision END, $3,
    coalesce(o.deletion_actor, $4), coalesce(o.deletion_cascade, CASE WHEN o.deletion_time IS NULL THEN $5 END, o.uid),
    CASE WHEN $6 OR o.kind <> 'secrets' THEN octet_length(c.body) ELSE 0 END
FROM unnest($1::bigint[]) WITH ORDINALITY AS j (id, place) JOIN objects o ON o.id = j.id JOIN changes c ON c.revision = o.revision
WHERE o.kind <> 'events'`
)

// burySet writes the tombstones.
const (
	burySetSQLite = `
INSERT INTO changes (revision, object, uid, kind, namespace, name, type, previous)
SELECT $2 + j.key, o.id, o.uid, o.kind, o.namespace, o.name, 3, o.revision
FROM json_each($1) j JOIN objects o ON o.id = j.value`
	burySetPostgres = `
INSERT INTO changes (revision, object, uid, kind, namespace, name, type, previous)
SELECT $2 + j.place - 1, o.id, o.uid, o.kind, o.namespace, o.name, 3, o.revision
FROM unnest($1::bigint[]) WITH ORDINALITY AS j (id, place) JOIN objects o ON o.id = j.id`
)

// deleteSet takes the objects' rows in owners with it.
const (
	deleteSetSQLite   = `DELETE FROM objects WHERE id IN (SELECT value FROM json_each($1))`
	deleteSetPostgres = `DELETE FROM objects WHERE id = ANY ($1::bigint[])`
)
