package collect

import (
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/imageuse"
)

// The statements of the collector. On PostgreSQL a review never waits for a
// transaction that uses its subject: it skips locked rows (SKIP LOCKED) and is
// postponed. It cannot skip rows of the queues. There its lock timeout is
// shorter than PostgreSQL's deadlock_timeout, so of two transactions that wait
// for each other the review always gives way.
//
// Each statement handles a whole batch. Each row of its list is one index
// lookup, whatever the planner's statistics say: OFFSET prevents a join with
// the subselect, and sequential scans are off.
const (
	reviewLockTimeout = `SET LOCAL lock_timeout = '300ms'`
	reviewByIndex     = `SET LOCAL enable_seqscan = off`
)

// lookManifests finds manifests by their keys in the queue. takeManifests also
// locks them for the review; on SQLite the single writer is the lock. A push
// that tags a manifest, lists it or stores it again holds a lock on it: then the
// review only looks at it. keepManifests locks subjects, so that they are not
// deleted meanwhile.
const (
	// inUse reports whether a workload names a manifest by its digest, or one did of which a version is kept.
	inUse               = `EXISTS (SELECT 1 FROM image_uses u WHERE u.path = r.path AND u.reference = m.digest)`
	lookManifestsSQLite = `
SELECT list.value, m.id, coalesce(m.subject_digest, ''), r.gc_hold OR ` + inUse + `
FROM json_each($1) AS list
CROSS JOIN manifests m ON m.repository_id = CAST(substr(list.value, 1, instr(list.value, '@') - 1) AS integer)
    AND m.digest = substr(list.value, instr(list.value, '@') + 1)
CROSS JOIN repositories r ON r.id = m.repository_id`
	// lockUsesPostgres waits for writes of workloads that name images of the repositories, and lets later ones wait.
	lockUsesPostgres = `
SELECT pg_advisory_xact_lock(s.key) FROM (
    SELECT DISTINCT ` + imageuse.LockKey + `r.path` + imageuse.LockEnd + ` AS key FROM repositories r
    WHERE r.id = ANY (ARRAY(SELECT split_part(value, '@', 1)::bigint FROM unnest($1::text[]) AS list (value))) ORDER BY key) AS s`
	manifestsPostgres = `
SELECT list.value, found.id, found.subject, found.gc_hold
FROM unnest($1::text[]) AS list (value) CROSS JOIN LATERAL (
    SELECT m.id, coalesce(m.subject_digest, '') AS subject, r.gc_hold OR ` + inUse + ` AS gc_hold
    FROM manifests m JOIN repositories r ON r.id = m.repository_id
    WHERE m.repository_id = split_part(list.value, '@', 1)::bigint AND m.digest = substr(list.value, strpos(list.value, '@') + 1)
    OFFSET 0 `
	lookManifestsPostgres = manifestsPostgres + `) AS found`
	takeManifestsPostgres = manifestsPostgres + `FOR UPDATE OF m SKIP LOCKED) AS found`
	keepManifestsPostgres = manifestsPostgres + `FOR KEY SHARE OF m SKIP LOCKED) AS found`
)

// manifestsKept returns the taken manifests that have a tag or a list,
// manifestsPostponed those whose review was postponed after it was claimed.
var (
	manifestsKept = sqldb.WithLists(`
SELECT list.value FROM LIST($1, bigint) AS list
WHERE EXISTS (SELECT 1 FROM tags t WHERE t.manifest_id = list.value LIMIT 1 OFFSET 0)
    OR EXISTS (SELECT 1 FROM manifest_references f WHERE f.child_id = list.value LIMIT 1 OFFSET 0)`)
	manifestsPostponed = sqldb.WithLists(`
SELECT list.value FROM LIST($1, text) AS list
WHERE EXISTS (SELECT 1 FROM gc_manifest_review_queue q WHERE q.manifest = list.value AND q.review_after > $2 LIMIT 1 OFFSET 0)`)
)

// deleteManifests deletes by ids. On PostgreSQL the rows that the triggers will
// write are first locked in order.
var deleteManifests = sqldb.WithLists(`DELETE FROM manifests WHERE id IN LIST($1, bigint)`)

// lookBlobs and takeBlobs are the same for blobs. A push locks the blobs of its
// manifest. The following statements use blob ids: blobs that were pushed
// together are adjacent in all tables.
const (
	lookBlobsSQLite = `
SELECT list.value, b.id FROM json_each($1) AS list CROSS JOIN blobs b ON b.digest = list.value`
	blobsPostgres = `
SELECT list.value, found.id FROM unnest($1::text[]) AS list (value) CROSS JOIN LATERAL (
    SELECT b.id FROM blobs b WHERE b.digest = list.value
    OFFSET 0 `
	lookBlobsPostgres = blobsPostgres + `) AS found`
	takeBlobsPostgres = blobsPostgres + `FOR UPDATE SKIP LOCKED) AS found`
)

// blobsUsed returns the taken blobs that a manifest of any repository uses,
// blobsPostponed those whose review was postponed after it was claimed.
var (
	blobsUsed = sqldb.WithLists(`
SELECT list.value FROM LIST($1, bigint) AS list
WHERE EXISTS (SELECT 1 FROM gc_blobs_configurations g WHERE g.blob_id = list.value LIMIT 1 OFFSET 0)
    OR EXISTS (SELECT 1 FROM gc_blobs_layers g WHERE g.blob_id = list.value LIMIT 1 OFFSET 0)`)
	blobsPostponed = sqldb.WithLists(`
SELECT list.value FROM LIST($1, text) AS list
WHERE EXISTS (SELECT 1 FROM gc_blob_review_queue q WHERE q.digest = list.value AND q.review_after > $2 LIMIT 1 OFFSET 0)`)
)

// blobsLinked returns the repositories of the blobs, and whether they are on
// hold. A popular blob has many, so the review asks only for unused blobs.
const (
	blobsLinkedSQLite = `
SELECT l.blob_id, r.id, r.gc_hold
FROM json_each($1) AS list CROSS JOIN repository_blobs l ON l.blob_id = list.value CROSS JOIN repositories r ON r.id = l.repository_id`
	blobsLinkedPostgres = `
SELECT list.value, found.id, found.gc_hold FROM unnest($1::bigint[]) AS list (value)
CROSS JOIN LATERAL (SELECT l.repository_id FROM repository_blobs l WHERE l.blob_id = list.value OFFSET 0) AS link
CROSS JOIN LATERAL (SELECT r.id, r.gc_hold FROM repositories r WHERE r.id = link.repository_id OFFSET 0) AS found`
)

// deleteBlobs deletes by ids, and returns how many bytes of the database each row had; a trigger
// queues their paths for the unlinker.
var deleteBlobs = sqldb.WithLists(`DELETE FROM blobs WHERE id IN LIST($1, bigint) RETURNING CASE WHEN small THEN size ELSE 0 END`)

// lookRemoved finds a repository whose object is gone; takeRemoved locks it for
// the review. A restore holds that lock too.
const (
	lookRemoved         = `SELECT r.id FROM repositories r WHERE r.path = '@' || CAST($1 AS text)`
	takeRemovedSQLite   = `SELECT r.id, r.top_level_namespace_id FROM repositories r WHERE r.path = '@' || CAST($1 AS text)`
	takeRemovedPostgres = takeRemovedSQLite + ` FOR UPDATE SKIP LOCKED`
)

// isArchived reports whether an object can still be restored.
const isArchived = `SELECT EXISTS (SELECT 1 FROM archive a WHERE a.uid = $1)`

// removableManifests are manifests of a repository that are in no list: the
// foreign key requires that a list is deleted before its manifests. removeLinks
// removes links to blobs, removeRepository the rest.
const (
	removableManifestsSQLite = `
SELECT m.id FROM manifests m
WHERE m.repository_id = $1 AND NOT EXISTS (SELECT 1 FROM manifest_references f WHERE f.child_id = m.id)
ORDER BY m.id DESC LIMIT $2`
	removableManifestsPostgres = removableManifestsSQLite + ` FOR UPDATE SKIP LOCKED`
	hasManifests               = `SELECT EXISTS (SELECT 1 FROM manifests m WHERE m.repository_id = $1)`
	removeLinks                = `
DELETE FROM repository_blobs WHERE repository_id = $1 AND blob_id IN (
    SELECT l.blob_id FROM repository_blobs l WHERE l.repository_id = $1 ORDER BY l.blob_id LIMIT $2)
RETURNING blob_id`
	removeRepository = `DELETE FROM repositories WHERE id = $1`
)

// removeNamespace removes a namespace that has no repository and no object in
// the API. On PostgreSQL it skips a locked one: a push is adding a repository to
// it.
const (
	removeNamespaceSQLite = `
DELETE FROM top_level_namespaces WHERE id IN (
    SELECT n.id FROM top_level_namespaces n
    WHERE n.id = $1 AND NOT EXISTS (SELECT 1 FROM repositories r WHERE r.top_level_namespace_id = n.id)
        AND NOT EXISTS (SELECT 1 FROM objects o WHERE o.kind = 'namespaces' AND o.namespace = '' AND o.name = n.name))`
	removeNamespacePostgres = `
DELETE FROM top_level_namespaces WHERE id IN (
    SELECT n.id FROM top_level_namespaces n
    WHERE n.id = $1 AND NOT EXISTS (SELECT 1 FROM repositories r WHERE r.top_level_namespace_id = n.id)
        AND NOT EXISTS (SELECT 1 FROM objects o WHERE o.kind = 'namespaces' AND o.namespace = '' AND o.name = n.name)
    FOR UPDATE SKIP LOCKED)`
)

// pathKnown reports whether a row names a path, and returns its size in the unlink
// queue.
const pathKnown = `
SELECT EXISTS (SELECT 1 FROM blobs b WHERE b.path = $1) OR EXISTS (SELECT 1 FROM blob_uploads u WHERE u.path = $1),
    coalesce((SELECT q.size FROM gc_unlink_queue q WHERE q.path = $1), 0)`

// pathToUnlink is pathKnown for the unlinker; the last column reports whether a backup
// runs that needs the bytes to stay. One statement reads both, see
// docs/spec/backup.md.
const pathToUnlink = `
SELECT EXISTS (SELECT 1 FROM blobs b WHERE b.path = $1) OR EXISTS (SELECT 1 FROM blob_uploads u WHERE u.path = $1),
    coalesce((SELECT q.size FROM gc_unlink_queue q WHERE q.path = $1), 0),
    EXISTS (SELECT 1 FROM backup_holds)`

// isAbandoned checks, without a lock, whether an upload was idle since $1 and is
// not claimed at $2. removeAbandoned deletes some, the oldest first; a trigger
// queues their paths for the unlinker.
const (
	isAbandoned = `
SELECT 1 FROM blob_uploads
WHERE updated_at <= $1 AND (claim_token IS NULL OR claim_until <= $2) LIMIT 1`
	removeAbandonedSQLite = `
DELETE FROM blob_uploads WHERE id IN (
    SELECT id FROM blob_uploads
    WHERE updated_at <= $1 AND (claim_token IS NULL OR claim_until <= $2)
    ORDER BY updated_at LIMIT $3)
RETURNING id`
	removeAbandonedPostgres = `
DELETE FROM blob_uploads WHERE id = ANY (ARRAY(
    SELECT id FROM blob_uploads
    WHERE updated_at <= $1 AND (claim_token IS NULL OR claim_until <= $2)
    ORDER BY updated_at LIMIT $3
    FOR UPDATE SKIP LOCKED))
RETURNING id`
)

// enqueueUnknown queues a path for the unlinker if no row names it and it is not
// queued yet.
const enqueueUnknown = `
INSERT INTO gc_unlink_queue (path, size, review_after, review_count, event, created_at)
SELECT CAST($1 AS text), CAST($2 AS bigint), CAST($3 AS bigint), 0, 'unknown_bytes', CAST($3 AS bigint)
WHERE NOT EXISTS (SELECT 1 FROM blobs b WHERE b.path = $1)
    AND NOT EXISTS (SELECT 1 FROM blob_uploads u WHERE u.path = $1)
ON CONFLICT (path) DO NOTHING
RETURNING path`

// The settings.
const (
	setReviewAfter = `
INSERT INTO gc_review_after_defaults (event, value) VALUES ($1, $2)
ON CONFLICT (event) DO UPDATE SET value = excluded.value`
	listReviewAfter = `SELECT event, value FROM gc_review_after_defaults ORDER BY event`
	setSetting      = `
INSERT INTO gc_settings (name, value) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET value = excluded.value`
)

// unlinkBytes counts the bytes in the unlink queue, countUploads the open and
// the abandoned uploads. reclaimed are the bytes of a day.
const (
	addReclaimed = `
INSERT INTO gc_given_back (day, bytes) VALUES ($1, $2)
ON CONFLICT (day) DO UPDATE SET bytes = gc_given_back.bytes + excluded.bytes`
	reclaimed    = `SELECT CAST(coalesce(sum(bytes), 0) AS bigint) FROM gc_given_back WHERE day = $1`
	unlinkBytes  = `SELECT CAST(coalesce(sum(size), 0) AS bigint) FROM gc_unlink_queue`
	countUploads = `
SELECT count(*), count(*) FILTER (WHERE updated_at <= $1 AND (claim_token IS NULL OR claim_until <= $2)) FROM blob_uploads`
)

// statements are the statements that differ between the engines.
type statements struct {
	postgres bool

	takeManifests, lookManifests, keepManifests      string
	takeBlobs, lookBlobs, blobsLinked                string
	removeAbandoned                                  string
	takeRemoved, removableManifests, removeNamespace string
}

func newStatements(engine sqldb.Engine) statements {
	if engine == sqldb.SQLite {
		return statements{
			takeManifests: lookManifestsSQLite, lookManifests: lookManifestsSQLite, keepManifests: lookManifestsSQLite,
			takeBlobs: lookBlobsSQLite, lookBlobs: lookBlobsSQLite, blobsLinked: blobsLinkedSQLite,
			removeAbandoned: removeAbandonedSQLite,
			takeRemoved:     takeRemovedSQLite, removableManifests: removableManifestsSQLite, removeNamespace: removeNamespaceSQLite,
		}
	}
	return statements{
		postgres:      true,
		takeManifests: takeManifestsPostgres, lookManifests: lookManifestsPostgres, keepManifests: keepManifestsPostgres,
		takeBlobs: takeBlobsPostgres, lookBlobs: lookBlobsPostgres, blobsLinked: blobsLinkedPostgres,
		removeAbandoned: removeAbandonedPostgres,
		takeRemoved:     takeRemovedPostgres, removableManifests: removableManifestsPostgres, removeNamespace: removeNamespacePostgres,
	}
}

// begin begins a review.
func (s *statements) begin(b *sqldb.Batch) {
	if s.postgres {
		b.Exec(reviewLockTimeout)
		b.Exec(reviewByIndex)
	}
}

// among adds a statement to a batch that returns a part of a list, and puts
// those elements into the set.
func among[T int64 | string](b *sqldb.Batch, engine sqldb.Engine, set map[T]bool, statement string, list []T, args ...any) {
	if len(list) == 0 {
		return
	}
	b.Query(func(row sqldb.Row) error {
		var value T
		err := row.Scan(&value)
		set[value] = true
		return err
	}, statement, append([]any{sqldb.List(engine, list)}, args...)...)
}

// undeleteWindow is the longest delay of a review, in milliseconds, over all
// repositories. Older deletions are forgotten, in steps, unless their review is
// still to come: it is late, or switched off, or the repository is on hold. The
// same review keeps the blobs of a deleted manifest.
const (
	undeleteWindow = `
SELECT coalesce(max(s.delay), 0) FROM (
    SELECT value AS delay FROM gc_review_after_defaults
    WHERE event IN ('tag_delete', 'tag_switch', 'manifest_delete', 'layer_delete', 'existence_check')
    UNION ALL
    SELECT gc_delay FROM repositories WHERE gc_delay IS NOT NULL) AS s`
	forgetTags = `
DELETE FROM deleted_tags WHERE (repository_id, name, deleted_at, digest) IN (
    SELECT d.repository_id, d.name, d.deleted_at, d.digest FROM deleted_tags d
    JOIN repositories r ON r.id = d.repository_id AND NOT r.gc_hold
    WHERE d.deleted_at <= $1
        AND NOT EXISTS (SELECT 1 FROM gc_manifest_review_queue q WHERE q.manifest = d.repository_id || '@' || d.digest)
    ORDER BY d.deleted_at LIMIT $2)
RETURNING 1`
	forgetManifests = `
DELETE FROM deleted_manifests WHERE (repository_id, digest) IN (
    SELECT x.repository_id, x.digest FROM deleted_manifests x
    JOIN repositories r ON r.id = x.repository_id AND NOT r.gc_hold
    WHERE x.deleted_at <= $1 ORDER BY x.deleted_at LIMIT $2)
RETURNING 1`
)
