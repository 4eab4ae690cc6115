// Package statement holds the SQL of pushes that more than one package of the
// registry needs: registry runs it, and collect, verify and their tests use the same
// text, so that a test of a race has the locks of a real push. It promises nothing
// about values: callers check them. The other statements stand in the sql.go of their
// package.
//
// The statements are the same on both engines unless a name ends in SQLite or
// Postgres.
package statement

// SignatureSuffixes returns the suffixes of the tags that cosign makes for an image.
func SignatureSuffixes() []string { return []string{".att", ".sbom", ".sig"} }

// FindRepository finds a repository by its unique path.
const FindRepository = `SELECT id, top_level_namespace_id FROM repositories WHERE path = $1`

// InsertNamespace and InsertRepository are idempotent.
const (
	InsertNamespace = `
INSERT INTO top_level_namespaces (name, created_at) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING`
	InsertRepository = `
INSERT INTO repositories (top_level_namespace_id, path, created_at)
SELECT id, CAST($2 AS text), CAST($3 AS bigint) FROM top_level_namespaces WHERE name = $1
ON CONFLICT (path) DO NOTHING`
)

// KeepBlob changes nothing, but it locks the row, and a trigger postpones the
// blob's review as for a new upload. If $2 is empty, the blob may be of any
// repository.
const KeepBlob = `
UPDATE blobs SET size = size
WHERE id = (SELECT b.id FROM blobs b WHERE b.digest = $1) AND NOT damaged AND (CAST($2 AS text) = '' OR EXISTS (
    SELECT 1 FROM repository_blobs l
    WHERE l.repository_id = (SELECT r.id FROM repositories r WHERE r.path = $2) AND l.blob_id = blobs.id LIMIT 1 OFFSET 0))
RETURNING path, size, small`

// InsertBlob writes the blob, or finds the existing one. Both lock the row, so
// the collector cannot delete it before the commit. A damaged blob gets the new
// bytes; a trigger queues the old path for the unlinker.
const InsertBlob = `
INSERT INTO blobs (digest, path, size, media_type_id, created_at, small) VALUES ($1, $2, $3, 1, $4, $5)
ON CONFLICT (digest) DO UPDATE SET size = excluded.size, damaged = false,
    path = CASE WHEN blobs.damaged THEN excluded.path ELSE blobs.path END,
    small = CASE WHEN blobs.damaged THEN excluded.small ELSE blobs.small END`

// InsertSmall writes the bytes of a small blob, if InsertBlob wrote the row with
// this path. It replaces damaged bytes. FindSmall reads them.
const (
	InsertSmall = `
INSERT INTO small_blobs (blob_id, content)
SELECT b.id, $2 FROM blobs b WHERE b.digest = $1 AND b.path = $3
ON CONFLICT (blob_id) DO UPDATE SET content = excluded.content`
	FindSmall = `SELECT s.content FROM blobs b JOIN small_blobs s ON s.blob_id = b.id WHERE b.digest = $1`
)

// LinkBlob follows a statement that locks the row of the blob.
const LinkBlob = `
INSERT INTO repository_blobs (top_level_namespace_id, repository_id, blob_id, created_at)
SELECT CAST($1 AS bigint), CAST($2 AS bigint), b.id, CAST($4 AS bigint) FROM blobs b WHERE b.digest = $3
ON CONFLICT (repository_id, blob_id) DO NOTHING`

const UnlinkBlob = `
DELETE FROM repository_blobs
WHERE repository_id = (SELECT id FROM repositories WHERE path = $1) AND blob_id = (SELECT b.id FROM blobs b WHERE b.digest = $2)
RETURNING repository_id`

// ManifestThere reports whether a manifest still exists; KeepManifest is KeepBlob for
// manifests.
const (
	ManifestThere = `SELECT 1 FROM manifests WHERE id = $1`
	KeepManifest  = `UPDATE manifests SET media_type_id = media_type_id WHERE id = $1 RETURNING 1`
)

// shareManifests finds which manifests of a list a repository has, and locks them
// until the transaction ends, in digest order, so that two pushes cannot deadlock.
const (
	ShareManifestsSQLite = `
SELECT digest, id FROM manifests
WHERE repository_id = $1 AND digest IN (SELECT value FROM json_each($2))
ORDER BY digest`
	ShareManifestsPostgres = `
SELECT digest, id FROM manifests
WHERE repository_id = $1 AND digest = ANY (ARRAY(SELECT jsonb_array_elements_text($2::jsonb)))
ORDER BY digest
FOR KEY SHARE`
)

// InsertManifest writes a manifest, or locks the existing one: the same bytes
// may come with another Content-Type.
const InsertManifest = `
INSERT INTO manifests (top_level_namespace_id, repository_id, digest, media_type_id, artifact_type, subject_digest,
    configuration_media_type_id, configuration_blob_id, total_size, payload, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT (repository_id, digest) DO UPDATE SET media_type_id = excluded.media_type_id
RETURNING id`

// PutTag creates a tag, or points it at another manifest.
const PutTag = `
INSERT INTO tags (top_level_namespace_id, repository_id, name, manifest_id, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $5)
ON CONFLICT (repository_id, name) DO UPDATE SET manifest_id = excluded.manifest_id, updated_at = excluded.updated_at, fetched_at = NULL`

const DeleteTag = `
DELETE FROM tags
WHERE repository_id = (SELECT id FROM repositories WHERE path = $1) AND name = $2
RETURNING repository_id`

// OrderDeletedManifests runs before manifests are deleted, on PostgreSQL: it locks
// the rows that triggers will write, in the order that all transactions use.
const OrderDeletedManifests = `SELECT gc_order_deleted_manifests($1::bigint[])`
