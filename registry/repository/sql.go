package repository

// All statements of the package, the same on both engines.

// listRows lists the existing repositories, and whether they have an object.
const listRows = `SELECT id, path, object_uid IS NOT NULL FROM repositories WHERE removed_at IS NULL ORDER BY id`

// findRow returns the path of a repository, if it exists.
const findRow = `SELECT path FROM repositories WHERE id = $1 AND removed_at IS NULL`

// findPath finds a repository by its path.
const findPath = `SELECT id FROM repositories WHERE path = $1`

// countContent counts the content of a repository. A manifest stays if a tag
// leads to it, through lists and subjects. A blob is reclaimable if no manifest
// that stays uses it. Manifests of other repositories count as staying, because
// this query does not know their fate. A repository on hold loses nothing.
//
// Each blob of the repository is one lookup in the index of its users, which
// ends at the first user that stays.
const countContent = `
WITH RECURSIVE edges (above, below) AS (
    SELECT f.parent_id, f.child_id FROM manifest_references f WHERE f.repository_id = $1
    UNION ALL
    SELECT s.id, m.id FROM manifests m JOIN manifests s ON s.repository_id = m.repository_id AND s.digest = m.subject_digest
    WHERE m.repository_id = $1 AND m.subject_digest IS NOT NULL
), kept (id) AS (
    SELECT t.manifest_id FROM tags t WHERE t.repository_id = $1
    UNION
    SELECT e.below FROM kept k JOIN edges e ON e.above = k.id
), held (size, stays) AS (
    SELECT b.size, r.gc_hold OR EXISTS (
            SELECT 1 FROM gc_blobs_layers g JOIN layers y ON y.id = g.layer_id
            WHERE g.blob_id = b.id AND (g.repository_id <> $1 OR y.manifest_id IN (SELECT id FROM kept)))
        OR EXISTS (
            SELECT 1 FROM gc_blobs_configurations g
            WHERE g.blob_id = b.id AND (g.repository_id <> $1 OR g.manifest_id IN (SELECT id FROM kept)))
    FROM repositories r
    JOIN repository_blobs l ON l.repository_id = r.id
    JOIN blobs b ON b.id = l.blob_id
    WHERE r.id = $1
)
SELECT (SELECT count(*) FROM tags WHERE repository_id = $1),
    (SELECT count(*) FROM manifests WHERE repository_id = $1),
    CAST(coalesce(sum(h.size), 0) AS bigint),
    CAST(coalesce(sum(h.size) FILTER (WHERE NOT h.stays), 0) AS bigint),
    (SELECT coalesce(max(created_at), 0) FROM manifests WHERE repository_id = $1),
    (SELECT coalesce(max(updated_at), 0) FROM tags WHERE repository_id = $1)
FROM held h`
