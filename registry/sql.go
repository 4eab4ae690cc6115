package registry

// All statements of the package. They are the same on both engines unless a name
// ends in SQLite or Postgres. Both engines compare text by bytes. Lists are
// passed as JSON.

// repositoryThere finds a repository by its id.
const repositoryThere = `SELECT 1 FROM repositories WHERE id = $1`

// findTarget finds the repository of a push, and the reasons to refuse the push:
// it has no object yet, or the object or its namespace is being deleted.
// lockTarget also locks it until the transaction ends: a transaction that marks
// or removes the object waits. The namespace is only read. When it is deleted,
// its repositories are deleted one by one, and each deletion waits for its
// pushes.
const (
	findTarget = `
SELECT r.id, r.top_level_namespace_id, r.object_uid IS NOT NULL, r.deleting, n.deleting
FROM repositories r JOIN top_level_namespaces n ON n.id = r.top_level_namespace_id
WHERE r.path = $1`
	lockTargetPostgres = findTarget + ` FOR SHARE OF r`
)

// countUploads counts the uploads under way, and those of a namespace.
const countUploads = `
SELECT count(*), count(CASE WHEN n.name = $1 THEN 1 END)
FROM blob_uploads u JOIN repositories r ON r.id = u.repository_id JOIN top_level_namespaces n ON n.id = r.top_level_namespace_id`

// listRepositories lists the repositories that have content, in path order, as
// one value. It leaves out removed ones: clients cannot reach their content.
const listRepositories = `
SELECT coalesce(string_agg(page.path, ','), '') FROM (
    SELECT r.path FROM repositories r
    WHERE r.path > $1 AND r.removed_at IS NULL AND EXISTS (SELECT 1 FROM manifests m WHERE m.repository_id = r.id)
    ORDER BY r.path LIMIT $2) AS page`

const (
	findMediaTypesSQLite   = `SELECT media_type, id FROM media_types WHERE media_type IN (SELECT value FROM json_each($1))`
	findMediaTypesPostgres = `SELECT media_type, id FROM media_types WHERE media_type = ANY (ARRAY(SELECT jsonb_array_elements_text($1::jsonb)))`

	// In list order, so that two pushes cannot deadlock. Without the WHERE,
	// SQLite would parse ON CONFLICT as a join's ON.
	insertMediaTypesSQLite = `
INSERT INTO media_types (media_type) SELECT value FROM json_each($1) WHERE true ORDER BY key
ON CONFLICT (media_type) DO NOTHING`
	insertMediaTypesPostgres = `
INSERT INTO media_types (media_type) SELECT value FROM jsonb_array_elements_text($1::jsonb) WITH ORDINALITY AS list (value, at) ORDER BY at
ON CONFLICT (media_type) DO NOTHING`
)

// hasBlob finds a blob of a repository by three unique keys, in this order,
// which OFFSET keeps. findBlob finds one that can be served. Damaged blobs are
// visible only to uploads; blobDamaged finds them.
const (
	hasBlob = `
FROM blobs b
WHERE b.digest = $2 AND EXISTS (
    SELECT 1 FROM repository_blobs l
    WHERE l.repository_id = (SELECT r.id FROM repositories r WHERE r.path = $1) AND l.blob_id = b.id LIMIT 1 OFFSET 0) AND `
	findBlob    = `SELECT b.path, b.size, b.small` + hasBlob + `NOT b.damaged`
	blobDamaged = `SELECT 1` + hasBlob + `b.damaged`
)

// promised is the duration of a promise, in milliseconds.
const promised = `coalesce((SELECT value FROM gc_review_after_defaults WHERE event = 'existence_check'), 3600000)`

// findBlobDue is findBlob, and reports whether the blob's review is due before a
// promise made at $3 ends. It reads the delay only for a queued blob.
const findBlobDue = `
SELECT b.path, b.size, b.small,
    EXISTS (SELECT 1 FROM gc_blob_review_queue q WHERE q.digest = b.digest AND q.review_after < CAST($3 AS bigint) + ` + promised + `)` +
	hasBlob + `NOT b.damaged`

// mountBlob links a blob of another repository, or of any if $5 is empty, unless its review is due
// before a promise made at $4 ends. The foreign key locks the blob.
const mountBlob = `
INSERT INTO repository_blobs (top_level_namespace_id, repository_id, blob_id, created_at)
SELECT CAST($1 AS bigint), CAST($2 AS bigint), b.id, CAST($4 AS bigint)
FROM blobs b
WHERE b.digest = $3 AND NOT b.damaged AND (CAST($5 AS text) = '' OR EXISTS (
    SELECT 1 FROM repository_blobs l
    WHERE l.repository_id = (SELECT r.id FROM repositories r WHERE r.path = $5) AND l.blob_id = b.id LIMIT 1 OFFSET 0))
  AND NOT EXISTS (SELECT 1 FROM gc_blob_review_queue q WHERE q.digest = b.digest AND q.review_after < CAST($4 AS bigint) + ` + promised + `)
ON CONFLICT (repository_id, blob_id) DO NOTHING
RETURNING 1`

const insertUpload = `
INSERT INTO blob_uploads (id, repository_id, path, algorithm, size, created_at, updated_at, claim_token, claim_until)
VALUES ($1, $2, $3, $4, 0, $5, $5, $6, $7)
ON CONFLICT (id) DO NOTHING
RETURNING 1`

// findUpload finds an upload only in its own repository. OFFSET keeps it from
// reading all uploads of the repository.
const findUpload = `
SELECT r.id, r.top_level_namespace_id, found.path, found.algorithm, found.size, found.hash_state, found.store_state
FROM (SELECT u.* FROM blob_uploads u WHERE u.id = $1 LIMIT 1 OFFSET 0) AS found JOIN repositories r ON r.id = found.repository_id
WHERE r.path = $2`

// claimUpload claims an upload that is free, or whose lease has expired. OFFSET
// does here what it does in findUpload.
const claimUpload = `
UPDATE blob_uploads SET claim_token = $3, claim_until = $4, updated_at = $5
WHERE id = $1 AND EXISTS (SELECT 1 FROM repositories r WHERE r.id = blob_uploads.repository_id AND r.path = $2 LIMIT 1 OFFSET 0)
  AND (claim_token IS NULL OR claim_until < $5 OR claim_token = $3)
RETURNING 1`

// saveUpload records what was synced, and releases the upload. The token is
// empty on SQLite, which needs no claims.
const saveUpload = `
UPDATE blob_uploads SET size = $3, hash_state = $4, updated_at = $5, algorithm = $6, store_state = $7,
    claim_token = NULL, claim_until = NULL
WHERE id = $1 AND coalesce(claim_token, '') = $2
RETURNING 1`

// releaseUpload releases an upload without a change.
const releaseUpload = `UPDATE blob_uploads SET claim_token = NULL, claim_until = NULL WHERE id = $1 AND claim_token = $2`

// deleteUpload ends an upload that this request holds. Its path is now in blobs,
// or a trigger queues it for the collector.
const deleteUpload = `
DELETE FROM blob_uploads WHERE id = $1 AND coalesce(claim_token, '') = $2
RETURNING 1`

// findManifest finds a manifest by digest, findTagged by tag.
const (
	findManifest = `
SELECT m.id, m.repository_id, m.digest, t.media_type, m.payload
FROM repositories r
JOIN manifests m ON m.repository_id = r.id
JOIN media_types t ON t.id = m.media_type_id
WHERE r.path = $1 AND m.digest = $2`
	findTagged = `
SELECT m.id, m.repository_id, m.digest, t.media_type, m.payload
FROM repositories r
JOIN tags g ON g.repository_id = r.id
JOIN manifests m ON m.id = g.manifest_id
JOIN media_types t ON t.id = m.media_type_id
WHERE r.path = $1 AND g.name = $2`
)

// manifestDue reports whether a manifest's review is due before a promise made at
// $2 ends.
const manifestDue = `SELECT 1 FROM gc_manifest_review_queue WHERE manifest = $1 AND review_after < CAST($2 AS bigint) + ` + promised

// shareBlobs finds which of some blobs a repository has, and locks them until
// the transaction ends, in digest order, so that two pushes cannot deadlock.
// Each blob takes two index lookups; the planners would prefer to read all blobs
// of the repository.
const (
	shareBlobsSQLite = `
SELECT b.digest, b.id, b.size
FROM json_each($2) AS list
CROSS JOIN blobs b ON b.digest = list.value AND NOT b.damaged
CROSS JOIN repository_blobs l ON l.repository_id = $1 AND l.blob_id = b.id`
	shareBlobsPostgres = `
SELECT found.digest, found.id, found.size
FROM (SELECT value FROM jsonb_array_elements_text($2::jsonb) AS value ORDER BY value COLLATE "C") AS list
CROSS JOIN LATERAL (
    SELECT b.digest, b.id, b.size FROM blobs b JOIN repository_blobs l ON l.blob_id = b.id
    WHERE b.digest = list.value AND NOT b.damaged AND l.repository_id = $1
    OFFSET 0 FOR KEY SHARE OF b) AS found`
)

// insertLayers takes a list of [blob, media type, size], all numbers.
const (
	insertLayersSQLite = `
INSERT INTO layers (top_level_namespace_id, repository_id, manifest_id, blob_id, media_type_id, size)
SELECT $1, $2, $3, value ->> 0, value ->> 1, value ->> 2 FROM json_each($4) WHERE true
ON CONFLICT (manifest_id, blob_id) DO NOTHING`
	insertLayersPostgres = `
INSERT INTO layers (top_level_namespace_id, repository_id, manifest_id, blob_id, media_type_id, size)
SELECT $1::bigint, $2::bigint, $3::bigint, (value ->> 0)::bigint, (value ->> 1)::bigint, (value ->> 2)::bigint
FROM jsonb_array_elements($4::jsonb)
ON CONFLICT (manifest_id, blob_id) DO NOTHING`
)

// insertReferences takes an ordered list of manifest ids.
const (
	insertReferencesSQLite = `
INSERT INTO manifest_references (top_level_namespace_id, repository_id, parent_id, child_id)
SELECT $1, $2, $3, value FROM json_each($4) WHERE true ORDER BY value
ON CONFLICT (parent_id, child_id) DO NOTHING`
	insertReferencesPostgres = `
INSERT INTO manifest_references (top_level_namespace_id, repository_id, parent_id, child_id)
SELECT $1::bigint, $2::bigint, $3::bigint, value::bigint FROM jsonb_array_elements_text($4::jsonb) ORDER BY value::bigint
ON CONFLICT (parent_id, child_id) DO NOTHING`
)

// orderTags and orderDeletedTag run before tags are put or deleted, on
// PostgreSQL: they lock the rows that triggers will write, in the order that all
// transactions use. $3 is the digest of the pushed manifest.
const (
	orderTags       = `SELECT gc_order_tags($1::bigint, $2::text[], $3::text)`
	orderDeletedTag = `SELECT gc_order_tags((SELECT id FROM repositories WHERE path = $1::text), ARRAY[$2::text], NULL)`
)

// lockManifest prevents that a list adds a manifest before it is deleted.
const (
	lockManifestSQLite   = `SELECT m.id, m.repository_id FROM manifests m JOIN repositories r ON r.id = m.repository_id WHERE r.path = $1 AND m.digest = $2`
	lockManifestPostgres = lockManifestSQLite + ` FOR UPDATE OF m`
)

// listParents names some of the lists that contain a manifest.
const listParents = `
SELECT p.digest FROM manifest_references f JOIN manifests p ON p.id = f.parent_id
WHERE f.child_id = $1 ORDER BY p.digest LIMIT 10`

// deleteManifest also deletes its tags, layers and references, by foreign keys.
const deleteManifest = `DELETE FROM manifests WHERE id = $1`

// rememberManifest and rememberTags store what undelete needs of a manifest,
// before it is deleted. For tags that are deleted alone, triggers do that.
const (
	rememberManifest = `
INSERT INTO deleted_manifests (repository_id, digest, media_type_id, payload, deleted_at)
SELECT m.repository_id, m.digest, m.media_type_id, m.payload, CAST($2 AS bigint) FROM manifests m WHERE m.id = $1
ON CONFLICT (repository_id, digest) DO UPDATE SET deleted_at = excluded.deleted_at, media_type_id = excluded.media_type_id`
	rememberTags = `
INSERT INTO deleted_tags (repository_id, name, digest, event, deleted_at)
SELECT t.repository_id, t.name, m.digest, 'manifest_delete', CAST($2 AS bigint)
FROM tags t JOIN manifests m ON m.id = t.manifest_id WHERE t.manifest_id = $1
ON CONFLICT (repository_id, name, deleted_at, digest) DO NOTHING`
)

// listDeleted lists what undelete can restore of the repository $1, the tag $2
// and the manifest $3; each may be empty, for all. It returns tags that were
// deleted or point elsewhere now, if their manifest exists or is remembered; and
// remembered manifests that had no tag.
const listDeleted = `
SELECT r.path, d.name, d.digest, d.event, d.deleted_at AS at, coalesce(q.review_after, 0)
FROM deleted_tags d
JOIN repositories r ON r.id = d.repository_id AND r.removed_at IS NULL
LEFT JOIN manifests m ON m.repository_id = d.repository_id AND m.digest = d.digest
LEFT JOIN gc_manifest_review_queue q ON m.id IS NOT NULL AND q.manifest = d.repository_id || '@' || d.digest
WHERE ($1 = '' OR r.path = $1) AND ($2 = '' OR d.name = $2) AND ($3 = '' OR d.digest = $3)
    AND (m.id IS NOT NULL OR EXISTS (
        SELECT 1 FROM deleted_manifests x WHERE x.repository_id = d.repository_id AND x.digest = d.digest))
    AND NOT EXISTS (
        SELECT 1 FROM tags t WHERE t.repository_id = d.repository_id AND t.name = d.name AND t.manifest_id = m.id)
UNION ALL
SELECT r.path, '', x.digest, 'manifest_delete', x.deleted_at, 0
FROM deleted_manifests x JOIN repositories r ON r.id = x.repository_id AND r.removed_at IS NULL
WHERE ($1 = '' OR r.path = $1) AND $2 = '' AND ($3 = '' OR x.digest = $3)
    AND NOT EXISTS (SELECT 1 FROM manifests m WHERE m.repository_id = x.repository_id AND m.digest = x.digest)
    AND NOT EXISTS (SELECT 1 FROM deleted_tags d WHERE d.repository_id = x.repository_id AND d.digest = x.digest)
ORDER BY at DESC LIMIT $4`

// tagElsewhere returns the digest of the manifest that a tag points at, if it is not $3.
// Each table takes one index lookup, whatever the planner's statistics say.
const tagElsewhere = `
SELECT found.digest FROM (
    SELECT (SELECT m.digest FROM manifests m WHERE m.id = t.manifest_id) AS digest
    FROM tags t WHERE t.repository_id = $1 AND t.name = $2) AS found
WHERE found.digest <> $3`

// findTagRules returns the bodies of the Namespace $1 and of the Repository of a path, which
// say what tags are immutable.
const findTagRules = `
SELECT c.body FROM objects o JOIN changes c ON c.revision = o.revision
WHERE o.kind = 'namespaces' AND o.namespace = '' AND o.name = $1
UNION ALL
SELECT c.body FROM repositories r JOIN objects o ON o.uid = r.object_uid JOIN changes c ON c.revision = o.revision WHERE r.path = $2`

// findTag returns the digest that a tag points at, and listManifestTags the tags of a manifest.
const (
	findTag = `
SELECT m.digest FROM repositories r JOIN tags t ON t.repository_id = r.id JOIN manifests m ON m.id = t.manifest_id
WHERE r.path = $1 AND t.name = $2`
	listManifestTags = `SELECT name FROM tags WHERE manifest_id = $1`
)

// findQuota returns the limit of a repository, or of its namespace $2, that has the least left.
const findQuota = `
SELECT q.name, q.most, q.bytes FROM registry_quotas q
WHERE q.uid = (SELECT r.object_uid FROM repositories r WHERE r.path = $1) OR q.namespace = $2
ORDER BY q.most - q.bytes LIMIT 1`

// findDeletedManifest finds the manifest to push again: an existing or a
// remembered one.
const findDeletedManifest = `
SELECT t.media_type, m.payload FROM repositories r
JOIN manifests m ON m.repository_id = r.id AND m.digest = $2
JOIN media_types t ON t.id = m.media_type_id WHERE r.path = $1
UNION ALL
SELECT t.media_type, x.payload FROM repositories r
JOIN deleted_manifests x ON x.repository_id = r.id AND x.digest = $2
JOIN media_types t ON t.id = x.media_type_id WHERE r.path = $1
LIMIT 1`

// listTags returns a page of a repository's tags, by primary key, as one value.
const listTags = `
SELECT coalesce(string_agg(page.name, ','), '') FROM (
    SELECT name FROM tags WHERE repository_id = $1 AND name > $2 ORDER BY name LIMIT $3) AS page`

// listTagDetails is listTags with what people choose tags by. The size of a list is the sum of its manifests.
const listTagDetails = `
SELECT t.name, m.digest, y.media_type,
    m.total_size + coalesce((SELECT CAST(sum(c.total_size) AS bigint) FROM manifest_references f JOIN manifests c ON c.id = f.child_id WHERE f.parent_id = m.id), 0),
    (SELECT count(*) FROM manifest_references f WHERE f.parent_id = m.id), t.updated_at, coalesce(t.pulled_at, 0)
FROM tags t JOIN manifests m ON m.id = t.manifest_id JOIN media_types y ON y.id = m.media_type_id
WHERE t.repository_id = $1 AND t.name > $2 ORDER BY t.name LIMIT $3`

// notePull writes when the tags of a manifest were last pulled. On PostgreSQL it leaves out a tag that another transaction
// has locked, so it waits for none and takes part in no deadlock; the next pull writes it.
const (
	notePullSQLite   = `UPDATE tags SET pulled_at = $2 WHERE manifest_id = $1`
	notePullPostgres = `
UPDATE tags SET pulled_at = $2 WHERE (repository_id, name) IN (
    SELECT repository_id, name FROM tags WHERE manifest_id = $1 FOR NO KEY UPDATE SKIP LOCKED)`
)

// countPulls adds to the pulls of a manifest on a day, unless the repository is gone.
const countPulls = `
INSERT INTO pull_days (repository_id, day, name, digest, pulls, pulled_at)
SELECT r.id, $2, $3, $4, $5, $6 FROM repositories r WHERE r.id = $1
ON CONFLICT (repository_id, day, name, digest) DO UPDATE SET pulls = pull_days.pulls + excluded.pulls, pulled_at = excluded.pulled_at`

// listReferrers returns at most $5 of the manifests that have a subject, by
// manifests_repository_id_subject_digest_idx. $4 is the filter, or empty.
const listReferrers = `
SELECT m.digest, t.media_type, coalesce(m.artifact_type, ''), m.payload
FROM manifests m JOIN media_types t ON t.id = m.media_type_id
WHERE m.repository_id = $1 AND m.subject_digest = $2 AND m.digest > $3
  AND ($4 = '' OR m.artifact_type = $4)
ORDER BY m.digest LIMIT $5`

// findFetched returns when the upstream last named the manifest of a tag, unless a client pushed the tag; tagPushed
// reports that one did. markFetched and setFetched write the time.
const (
	findFetched = `SELECT fetched_at FROM tags WHERE repository_id = $1 AND name = $2 AND fetched_at IS NOT NULL`
	tagPushed   = `SELECT 1 FROM tags WHERE repository_id = $1 AND name = $2 AND fetched_at IS NULL`
	markFetched = `UPDATE tags SET fetched_at = $3 WHERE repository_id = $1 AND name = $2 AND manifest_id = $4 AND fetched_at IS NOT NULL`
	setFetched  = `UPDATE tags SET fetched_at = $3 WHERE repository_id = $1 AND name = $2`
)

// findMissing returns the size that a manifest says of a blob that its repository does not have.
const findMissing = `
SELECT c.size FROM repositories r JOIN missing_content c ON c.repository_id = r.id
WHERE r.path = $1 AND c.digest = $2 LIMIT 1`

// insertMissing takes a list of lack.
const (
	insertMissingSQLite = `
INSERT INTO missing_content (repository_id, manifest_id, digest, media_type_id, size)
SELECT $1, $2, value ->> 0, value ->> 1, value ->> 2 FROM json_each($3) WHERE true
ON CONFLICT (repository_id, digest, manifest_id) DO NOTHING`
	insertMissingPostgres = `
INSERT INTO missing_content (repository_id, manifest_id, digest, media_type_id, size)
SELECT $1::bigint, $2::bigint, value ->> 0, (value ->> 1)::bigint, (value ->> 2)::bigint FROM jsonb_array_elements($3::jsonb)
ON CONFLICT (repository_id, digest, manifest_id) DO NOTHING`
)

// linkMissingLayer gives the blob $3, and linkMissingManifest the manifest $3, to the manifests that lack it.
// On PostgreSQL lockLacking keeps these until the end: a deletion comes before it or waits.
const (
	lockLacking = `
SELECT 1 FROM manifests WHERE id IN (SELECT manifest_id FROM missing_content WHERE repository_id = $1 AND digest = $2)
ORDER BY digest FOR KEY SHARE`
	linkMissingLayer = `
INSERT INTO layers (top_level_namespace_id, repository_id, manifest_id, blob_id, media_type_id, size)
SELECT CAST($1 AS bigint), c.repository_id, c.manifest_id, b.id, c.media_type_id, b.size
FROM missing_content c JOIN blobs b ON b.digest = c.digest
WHERE c.repository_id = $2 AND c.digest = $3 AND c.media_type_id > 0
ON CONFLICT (manifest_id, blob_id) DO NOTHING`
	linkMissingManifest = `
INSERT INTO manifest_references (top_level_namespace_id, repository_id, parent_id, child_id)
SELECT CAST($1 AS bigint), c.repository_id, c.manifest_id, m.id
FROM missing_content c JOIN manifests m ON m.repository_id = c.repository_id AND m.digest = c.digest
WHERE c.repository_id = $2 AND c.digest = $3 AND c.media_type_id = 0
ON CONFLICT (parent_id, child_id) DO NOTHING`
	dropMissing = `DELETE FROM missing_content WHERE repository_id = $1 AND digest = $2`
)
