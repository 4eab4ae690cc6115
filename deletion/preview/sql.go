package preview

// All statements of the package. They only read. They are the same on both
// engines unless the name ends in SQLite or Postgres: a list of keys is JSON on
// SQLite and an array on PostgreSQL. Each reads the columns of head.fields, unless
// its comment says otherwise.

// readRevision is the revision of the snapshot. One row.
const readRevision = `SELECT current FROM revision`

// readPaused is the collector's switch. One row.
const readPaused = `SELECT paused, reason FROM gc_state`

// readReview is a row of the collector's queue. The report reads it in the
// snapshot, on the same connection: reports that hold one connection and wait for
// a second could deadlock.
const readReview = `
SELECT review_count, created_at, review_after, coalesce(last_error, ''), coalesce(claim_until, 0)
FROM gc_object_reviews WHERE uid = $1`

// headByUID and headByKey use unique indexes.
const (
	headByUID = `
SELECT d.id, d.uid, d.kind, d.namespace, d.name, coalesce(d.deletion_time, 0), d.finalizing, c.body
FROM objects d JOIN changes c ON c.revision = d.revision
WHERE d.uid = $1`
	headByKey = `
SELECT d.id, d.uid, d.kind, d.namespace, d.name, coalesce(d.deletion_time, 0), d.finalizing, c.body
FROM objects d JOIN changes c ON c.revision = d.revision
WHERE d.kind = $1 AND d.namespace = $2 AND d.name = $3`
)

// headsByID reads the objects of a page, in order, by primary key.
const (
	headsByIDSQLite = `
SELECT d.id, d.uid, d.kind, d.namespace, d.name, coalesce(d.deletion_time, 0), d.finalizing, c.body
FROM objects d JOIN changes c ON c.revision = d.revision
WHERE d.id IN (SELECT value FROM json_each($1)) ORDER BY d.id`
	headsByIDPostgres = `
SELECT d.id, d.uid, d.kind, d.namespace, d.name, coalesce(d.deletion_time, 0), d.finalizing, c.body
FROM objects d JOIN changes c ON c.revision = d.revision
WHERE d.id = ANY ($1::bigint[]) ORDER BY d.id`
)

// blocks says whether the reference w is blocking and has the name of the object
// with its uid. The walk compares the kind.
const blocks = `coalesce(w.blocking AND w.owner_name = (SELECT o.name FROM objects o WHERE o.uid = w.owner_uid), FALSE)`

// dependentsOfMany reads the dependents of a list of owners, the first $2 in
// order of owner and age, behind the owner and whether the dependent blocks
// it. The index on owners serves each owner.
const (
	dependentsOfManySQLite = `
SELECT w.owner_uid, ` + blocks + `, w.owner_group, w.owner_kind, d.id, d.uid, d.kind, d.namespace, d.name, coalesce(d.deletion_time, 0), d.finalizing, c.body
FROM json_each($1) f JOIN owners w ON w.owner_uid = f.value
    JOIN objects d ON d.id = w.dependent JOIN changes c ON c.revision = d.revision
ORDER BY w.owner_uid, w.dependent LIMIT $2`
	dependentsOfManyPostgres = `
SELECT w.owner_uid, ` + blocks + `, w.owner_group, w.owner_kind, d.id, d.uid, d.kind, d.namespace, d.name, coalesce(d.deletion_time, 0), d.finalizing, c.body
FROM unnest($1::text[]) AS f (uid) JOIN owners w ON w.owner_uid = f.uid
    JOIN objects d ON d.id = w.dependent JOIN changes c ON c.revision = d.revision
ORDER BY w.owner_uid, w.dependent LIMIT $2`
)

// dependentsOfOne continues with one owner that has many dependents. Each page
// begins in the index where the last one ended, so it reads 100,000 dependents
// once.
const dependentsOfOne = `
SELECT w.owner_uid, ` + blocks + `, w.owner_group, w.owner_kind, d.id, d.uid, d.kind, d.namespace, d.name, coalesce(d.deletion_time, 0), d.finalizing, c.body
FROM owners w JOIN objects d ON d.id = w.dependent JOIN changes c ON c.revision = d.revision
WHERE w.owner_uid = $1 AND w.dependent > $2
ORDER BY w.dependent LIMIT $3`

// contentOf reads a kind's objects in one namespace, by name; contentOfAll in
// all of them.
const (
	contentOf = `
SELECT d.id, d.uid, d.kind, d.namespace, d.name, coalesce(d.deletion_time, 0), d.finalizing, c.body
FROM objects d JOIN changes c ON c.revision = d.revision
WHERE d.kind = $1 AND d.namespace = $2 AND d.name > $3
ORDER BY d.name LIMIT $4`
	contentOfAll = `
SELECT d.id, d.uid, d.kind, d.namespace, d.name, coalesce(d.deletion_time, 0), d.finalizing, c.body
FROM objects d JOIN changes c ON c.revision = d.revision
WHERE d.kind = $1 AND (d.namespace, d.name) > ($2, $3)
ORDER BY d.namespace, d.name LIMIT $4`
)

// ownersByUID is the input of gc.Classify: uid, kind, namespace, name, deletion
// time, finalizing.
const (
	ownersByUIDSQLite = `
SELECT uid, kind, namespace, name, coalesce(deletion_time, 0), finalizing FROM objects
WHERE uid IN (SELECT value FROM json_each($1))`
	ownersByUIDPostgres = `
SELECT uid, kind, namespace, name, coalesce(deletion_time, 0), finalizing FROM objects
WHERE uid = ANY ($1::text[])`
)

// removedOwners is which of a list of uids this server removed, and whether they
// were in a namespace, from the archive and the collector's queue.
const (
	removedOwnersSQLite = `
SELECT uid, namespace <> '' FROM archive WHERE uid IN (SELECT value FROM json_each($1))
UNION ALL
SELECT uid, event = 'owner_removed' FROM gc_object_reviews
WHERE uid IN (SELECT value FROM json_each($1)) AND event IN ('owner_removed', 'cluster_owner_removed')`
	removedOwnersPostgres = `
SELECT uid, namespace <> '' FROM archive WHERE uid = ANY ($1::text[])
UNION ALL
SELECT uid, event = 'owner_removed' FROM gc_object_reviews
WHERE uid = ANY ($1::text[]) AND event IN ('owner_removed', 'cluster_owner_removed')`
)

// withDependents is which of a list of uids have dependents.
const (
	withDependentsSQLite = `
SELECT f.value FROM json_each($1) f WHERE EXISTS (SELECT 1 FROM owners w WHERE w.owner_uid = f.value)`
	withDependentsPostgres = `
SELECT f.uid FROM unnest($1::text[]) AS f (uid) WHERE (SELECT TRUE FROM owners w WHERE w.owner_uid >= f.uid AND w.owner_uid <= f.uid ORDER BY w.owner_uid LIMIT 1) IS NOT NULL`
)

// kindsStored lists the kinds that have objects by skipping through the unique
// index: as many steps as there are kinds.
const kindsStored = `
WITH RECURSIVE k (kind) AS (
    SELECT min(kind) FROM objects
    UNION ALL
    SELECT (SELECT min(kind) FROM objects o WHERE o.kind > k.kind) FROM k WHERE k.kind IS NOT NULL
)
SELECT kind FROM k WHERE kind IS NOT NULL`

// countFollowing counts the dependents of the removed objects of a cascade.
const countFollowing = `
SELECT count(*) FROM archive a JOIN owners w ON w.owner_uid = a.uid
WHERE a.cascade = $1 AND a.cascade <> a.uid`

// following reads dependents of a removed object and of the removed objects of its
// cascade, DELETING ones first.
const following = `
SELECT d.id, d.uid, d.kind, d.namespace, d.name, coalesce(d.deletion_time, 0), d.finalizing, c.body
FROM objects d JOIN changes c ON c.revision = d.revision
WHERE d.id IN (
    SELECT dependent FROM owners WHERE owner_uid = $1
    UNION
    SELECT w.dependent FROM archive a JOIN owners w ON w.owner_uid = a.uid WHERE a.cascade = $1 AND a.cascade <> a.uid)
ORDER BY d.deletion_time IS NULL, d.id LIMIT $2`

// removalByUID and removalByKey find the archive row of an object. By key it reads
// the archive of the namespace from its newest row on.
const (
	removalByUID = `SELECT uid, removed_at, actor, coalesce(requester, actor) FROM archive WHERE uid = $1 ORDER BY id DESC LIMIT 1`
	removalByKey = `
SELECT uid, removed_at, actor, coalesce(requester, actor) FROM archive WHERE namespace = $1 AND kind = $2 AND name = $3
ORDER BY removed_at DESC, id DESC LIMIT 1`
)

// blockingDependents reads the dependents that a waiting owner waits for, DELETING
// ones first.
const blockingDependents = `
SELECT d.id, d.uid, d.kind, d.namespace, d.name, coalesce(d.deletion_time, 0), d.finalizing, c.body
FROM owners w JOIN objects d ON d.id = w.dependent JOIN changes c ON c.revision = d.revision
WHERE w.owner_uid = $1 AND w.blocking
ORDER BY d.deletion_time IS NULL, w.dependent LIMIT $2`

// lingering reads the DELETING objects of a kind in a namespace.
const lingering = `
SELECT d.id, d.uid, d.kind, d.namespace, d.name, coalesce(d.deletion_time, 0), d.finalizing, c.body
FROM objects d JOIN changes c ON c.revision = d.revision
WHERE d.kind = $1 AND d.namespace = $2 AND d.deletion_time IS NOT NULL
ORDER BY d.name LIMIT $3`

// lingeringAnywhere is lingering in all namespaces.
const lingeringAnywhere = `
SELECT d.id, d.uid, d.kind, d.namespace, d.name, coalesce(d.deletion_time, 0), d.finalizing, c.body
FROM objects d JOIN changes c ON c.revision = d.revision
WHERE d.kind = $1 AND d.deletion_time IS NOT NULL
ORDER BY d.namespace, d.name LIMIT $2`

// leavingByKey reads one object if it is DELETING, by the unique index.
const leavingByKey = `
SELECT d.id, d.uid, d.kind, d.namespace, d.name, coalesce(d.deletion_time, 0), d.finalizing, c.body
FROM objects d JOIN changes c ON c.revision = d.revision
WHERE d.kind = $1 AND d.namespace = $2 AND d.name = $3 AND d.deletion_time IS NOT NULL`

// Counts. One row each.
const (
	countDependents = `SELECT count(*) FROM owners WHERE owner_uid = $1`
	countBlocking   = `SELECT count(*) FROM owners WHERE owner_uid = $1 AND blocking`
	countContent    = `SELECT count(*) FROM objects WHERE kind = $1 AND namespace = $2`
	countKind       = `SELECT count(*) FROM objects WHERE kind = $1`
)
