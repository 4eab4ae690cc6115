package registry

import (
	"encoding/json"

	"github.com/exeunt/exeunt/sqldb"
)

// The statements of the collector. A review on PostgreSQL never waits for
// whoever uses its subject: it passes over what is locked (SKIP LOCKED) and
// comes back later. What it cannot pass over, rows of the queues, it waits for
// less long than PostgreSQL takes to look for a deadlock, so that of two who
// wait for each other it is always the review that gives way.
const reviewLockTimeout = `SET LOCAL lock_timeout = '300ms'`

// reviewManifest takes a manifest for its review: on SQLite nobody else can have
// it. Whoever makes a tag, a list or a pushed manifest of it has a lock on it:
// then it is not taken, but lookManifest finds it.
const (
	lookManifest = `
SELECT m.id, coalesce(m.subject_digest, ''), r.gc_hold
FROM manifests m JOIN repositories r ON r.id = m.repository_id
WHERE m.repository_id = $1 AND m.digest = $2`
	reviewManifestPostgres = lookManifest + ` FOR UPDATE OF m SKIP LOCKED`
)

// subjectHeld finds a subject and keeps it: were it being deleted, its referrer
// would have to be looked at again.
const (
	lookSubject         = `SELECT m.id FROM manifests m WHERE m.repository_id = $1 AND m.digest = $2`
	subjectHeldPostgres = lookSubject + ` FOR KEY SHARE SKIP LOCKED`
)

// manifestKept says what keeps a manifest that was taken: a tag, a list, or a
// review that was postponed since it was claimed. Each is one look into an
// index.
const manifestKept = `
SELECT EXISTS (SELECT 1 FROM tags t WHERE t.manifest_id = $1),
    EXISTS (SELECT 1 FROM manifest_references f WHERE f.child_id = $1),
    EXISTS (SELECT 1 FROM gc_manifest_review_queue q WHERE q.manifest = $2 AND q.review_after > $3)`

// deleteManifests deletes by a list of ids. On PostgreSQL the rows that the
// triggers write are taken in order first.
const (
	deleteManifestsSQLite   = `DELETE FROM manifests WHERE id IN (SELECT value FROM json_each($1))`
	deleteManifestsPostgres = `DELETE FROM manifests WHERE id = ANY ($1::bigint[])`
	orderDeletedManifests   = `SELECT gc_order_deleted_manifests($1::bigint[])`
)

// lookBlob and reviewBlob are the same for blobs. A push holds the blobs of its
// manifest.
const (
	lookBlob           = `SELECT digest FROM blobs WHERE digest = $1`
	reviewBlobPostgres = lookBlob + ` FOR UPDATE SKIP LOCKED`
)

// blobKept says what keeps a blob that was taken: a manifest of any repository,
// a repository on hold, or a review that was postponed since it was claimed.
const blobKept = `
SELECT EXISTS (SELECT 1 FROM gc_blobs_configurations g WHERE g.digest = $1)
        OR EXISTS (SELECT 1 FROM gc_blobs_layers g WHERE g.digest = $1),
    EXISTS (
        SELECT 1 FROM repository_blobs l JOIN repositories r ON r.id = l.repository_id
        WHERE l.blob_digest = $1 AND r.gc_hold),
    EXISTS (SELECT 1 FROM gc_blob_review_queue q WHERE q.digest = $1 AND q.review_after > $2)`

// deleteBlobs deletes by a list of digests; a trigger leaves their paths to the
// unlinker.
const (
	deleteBlobsSQLite   = `DELETE FROM blobs WHERE digest IN (SELECT value FROM json_each($1))` + givenBack
	deleteBlobsPostgres = `DELETE FROM blobs WHERE digest = ANY ($1::text[])` + givenBack
	givenBack           = ` RETURNING CASE WHEN small THEN size ELSE 0 END` // with the row
)

// lookRemoved finds a repository whose object is gone; takeRemoved takes it for
// its review. Somebody who restores it has it locked.
const (
	lookRemoved         = `SELECT r.id FROM repositories r WHERE r.path = '@' || CAST($1 AS text)`
	takeRemovedSQLite   = `SELECT r.id, r.top_level_namespace_id FROM repositories r WHERE r.path = '@' || CAST($1 AS text)`
	takeRemovedPostgres = takeRemovedSQLite + ` FOR UPDATE SKIP LOCKED`
)

// isArchived says whether an object can still be restored.
const isArchived = `SELECT EXISTS (SELECT 1 FROM archive a WHERE a.uid = $1)`

// removableManifests are manifests of a repository that no list holds: a list
// goes before what it holds, or the foreign key would object. removeLinks
// removes links to blobs, removeRepository what is left.
const (
	removableManifestsSQLite = `
SELECT m.id FROM manifests m
WHERE m.repository_id = $1 AND NOT EXISTS (SELECT 1 FROM manifest_references f WHERE f.child_id = m.id)
ORDER BY m.id DESC LIMIT $2`
	removableManifestsPostgres = removableManifestsSQLite + ` FOR UPDATE SKIP LOCKED`
	hasManifests               = `SELECT EXISTS (SELECT 1 FROM manifests m WHERE m.repository_id = $1)`
	removeLinks                = `
DELETE FROM repository_blobs WHERE repository_id = $1 AND blob_digest IN (
    SELECT l.blob_digest FROM repository_blobs l WHERE l.repository_id = $1 ORDER BY l.blob_digest LIMIT $2)
RETURNING blob_digest`
	removeRepository = `DELETE FROM repositories WHERE id = $1`
)

// removeNamespace removes a namespace that has no repository and is none of the
// API. On PostgreSQL one that is being given a repository is passed over: whoever
// does that has it locked.
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

// pathKnown says whether a row names a path, and how many bytes it is said to
// hold.
const pathKnown = `
SELECT EXISTS (SELECT 1 FROM blobs b WHERE b.path = $1) OR EXISTS (SELECT 1 FROM blob_uploads u WHERE u.path = $1),
    coalesce((SELECT q.size FROM gc_unlink_queue q WHERE q.path = $1), 0)`

// isAbandoned looks, without a lock, whether there is an upload that has given
// no sign of life since $1 and that nobody has at $2. removeAbandoned takes
// some, the oldest first; a trigger leaves their paths to the unlinker.
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

// enqueueUnknown leaves a path that no row names, and that is not queued, to
// the unlinker.
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

// unlinkBytes is how many bytes wait for the unlinker; countUploads how many
// uploads are open, and of them abandoned.
const (
	unlinkBytes  = `SELECT CAST(coalesce(sum(size), 0) AS bigint) FROM gc_unlink_queue`
	countUploads = `
SELECT count(*), count(*) FILTER (WHERE updated_at <= $1 AND (claim_token IS NULL OR claim_until <= $2)) FROM blob_uploads`
)

// gcStatements are those that differ between the engines.
type gcStatements struct {
	postgres                                     bool
	reviewManifest, subjectHeld, deleteManifests string
	reviewBlob, deleteBlobs, removeAbandoned     string
	takeRemoved, removableManifests              string
	removeNamespace                              string
}

func newGCStatements(engine sqldb.Engine) gcStatements {
	if engine == sqldb.Postgres {
		return gcStatements{
			postgres:       true,
			reviewManifest: reviewManifestPostgres, subjectHeld: subjectHeldPostgres, deleteManifests: deleteManifestsPostgres,
			reviewBlob: reviewBlobPostgres, deleteBlobs: deleteBlobsPostgres, removeAbandoned: removeAbandonedPostgres,
			takeRemoved: takeRemovedPostgres, removableManifests: removableManifestsPostgres, removeNamespace: removeNamespacePostgres,
		}
	}
	return gcStatements{
		reviewManifest: lookManifest, subjectHeld: lookSubject, deleteManifests: deleteManifestsSQLite,
		reviewBlob: lookBlob, deleteBlobs: deleteBlobsSQLite, removeAbandoned: removeAbandonedSQLite,
		takeRemoved: takeRemovedSQLite, removableManifests: removableManifestsSQLite, removeNamespace: removeNamespaceSQLite,
	}
}

// gcList is a list as the statements take it: an array, or JSON on SQLite.
func gcList[T int64 | string](s gcStatements, list []T) any {
	if s.postgres {
		return list
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic(err) // numbers and strings can always be marshalled
	}
	return string(text)
}
