package verify

// The statements of Verify. A statement that asks whether something is tracked
// checks all places at once, because transactions move it between them.

// listManifests returns a page of manifests, and whether each is kept or
// queued.
const listManifests = `
SELECT m.id, m.repository_id, r.path, m.digest, t.media_type, m.payload,
    EXISTS (SELECT 1 FROM tags g WHERE g.manifest_id = m.id)
        OR EXISTS (SELECT 1 FROM manifest_references f WHERE f.child_id = m.id)
        OR EXISTS (SELECT 1 FROM manifests s WHERE s.repository_id = m.repository_id AND s.digest = m.subject_digest)
        OR EXISTS (
            SELECT 1 FROM gc_manifest_review_queue q
            WHERE q.manifest = CAST(m.repository_id AS text) || '@' || m.digest)
FROM manifests m
JOIN repositories r ON r.id = m.repository_id
JOIN media_types t ON t.id = m.media_type_id
WHERE m.id > $1 ORDER BY m.id LIMIT $2`

// findManifest and findDigest say whether the content that a manifest refers to
// exists, or is to be fetched from the upstream of a cached repository.
const (
	findManifest = `
SELECT 1 FROM manifests WHERE repository_id = $1 AND digest = $2
UNION ALL SELECT 1 FROM missing_content WHERE manifest_id = $3 AND digest = $2`
	findDigest = `SELECT 1 FROM blobs WHERE digest = $1 UNION ALL SELECT 1 FROM missing_content WHERE manifest_id = $2 AND digest = $1`
)

// listBlobs returns a page of blobs, and whether each is used or queued.
const listBlobs = `
SELECT b.id, b.digest, b.path, b.size, b.small, b.damaged,
    EXISTS (SELECT 1 FROM gc_blobs_configurations g WHERE g.blob_id = b.id)
        OR EXISTS (SELECT 1 FROM gc_blobs_layers g WHERE g.blob_id = b.id)
        OR EXISTS (SELECT 1 FROM gc_blob_review_queue q WHERE q.digest = b.digest)
FROM blobs b
WHERE b.id > $1 ORDER BY b.id LIMIT $2`

const findBlob = `SELECT 1 FROM blobs WHERE digest = $1 AND path = $2`

// markBlob sets whether a blob is damaged, if it still has the bytes that were
// checked.
const markBlob = `UPDATE blobs SET damaged = $3 WHERE digest = $1 AND path = $2`

// blobUsers names manifests that use a blob, with one of their tags.
const blobUsers = `
SELECT r.path, coalesce((SELECT min(t.name) FROM tags t WHERE t.manifest_id = m.id), ''), m.digest
FROM manifests m JOIN repositories r ON r.id = m.repository_id
WHERE m.id IN (
    SELECT l.manifest_id FROM gc_blobs_layers g JOIN layers l ON l.id = g.layer_id WHERE g.blob_id = $1
    UNION ALL
    SELECT g.manifest_id FROM gc_blobs_configurations g WHERE g.blob_id = $1)
ORDER BY r.path, m.id LIMIT $2`

// pathKnown reports whether a row names a path, or the unlink queue has it.
const pathKnown = `
SELECT EXISTS (SELECT 1 FROM blobs b WHERE b.path = $1)
    OR EXISTS (SELECT 1 FROM blob_uploads u WHERE u.path = $1)
    OR EXISTS (SELECT 1 FROM gc_unlink_queue q WHERE q.path = $1)`
