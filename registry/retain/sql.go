package retain

import (
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/imageuse"
)

// All statements of the package, the same on both engines but for the locks of PostgreSQL.

// listNamespaces lists the namespaces that have policies, listPolicies the policies of one, and listVersions their revisions.
const (
	listNamespaces = `SELECT DISTINCT o.namespace FROM objects o WHERE o.kind = $1 ORDER BY o.namespace`
	listPolicies   = `
SELECT c.body FROM objects o JOIN changes c ON c.revision = o.revision
WHERE o.kind = $1 AND o.namespace = $2 AND o.deletion_time IS NULL ORDER BY o.name`
	listVersions = `SELECT o.revision FROM objects o WHERE o.kind = $1 AND o.namespace = $2 AND o.deletion_time IS NULL ORDER BY o.name`
)

// listSelectable lists the repositories of a namespace that exist, with their objects.
const listSelectable = `
SELECT r.id, r.path, c.body
FROM top_level_namespaces n JOIN repositories r ON r.top_level_namespace_id = n.id AND r.removed_at IS NULL AND NOT r.deleting
JOIN objects o ON o.uid = r.object_uid JOIN changes c ON c.revision = o.revision
WHERE n.name = $1 ORDER BY r.path`

// listTags lists a page of the tags of a repository, and whether a workload names the tag, its manifest, or a manifest of its list;
// namedTags those with some names.
const (
	selectTags = `
SELECT t.name, m.digest, t.updated_at, coalesce(t.pulled_at, 0),
    EXISTS (SELECT 1 FROM image_uses u WHERE u.path = $2 AND u.reference IN (t.name, m.digest))
    OR EXISTS (
        SELECT 1 FROM manifest_references f JOIN manifests c ON c.id = f.child_id
        JOIN image_uses u ON u.path = $2 AND u.reference = c.digest WHERE f.parent_id = m.id)
FROM tags t JOIN manifests m ON m.id = t.manifest_id WHERE t.repository_id = $1`
	listTags = selectTags + ` AND t.name > $3 ORDER BY t.name LIMIT $4`
)

var namedTags = sqldb.WithLists(selectTags + ` AND t.name IN LIST($3, text) ORDER BY t.name`)

// What happened on the last days, in their order, and the lists that have the manifests of a repository.
const (
	listChanges = `
SELECT day, name, coalesce(was_digest, ''), coalesce(was_pushed_at, 0), coalesce(digest, ''), coalesce(pushed_at, 0)
FROM tag_days WHERE repository_id = $1 AND day >= $2 ORDER BY day, name`
	listPulls = `SELECT day, name, digest, pulls, pulled_at FROM pull_days WHERE repository_id = $1 AND day >= $2 ORDER BY day, name, digest`
	listLists = `
SELECT c.digest, p.digest FROM manifests p JOIN manifest_references f ON f.parent_id = p.id JOIN manifests c ON c.id = f.child_id
WHERE p.repository_id = $1`
	findOldest  = `SELECT coalesce(min(o.day), $1) FROM (SELECT min(day) AS day FROM pull_days UNION ALL SELECT min(day) FROM tag_days) AS o`
	forgetPulls = `
DELETE FROM pull_days WHERE (repository_id, day, name, digest) IN (
    SELECT repository_id, day, name, digest FROM pull_days WHERE day < $1 ORDER BY day LIMIT $2) RETURNING day`
	forgetChanges = `
DELETE FROM tag_days WHERE (repository_id, day, name) IN (
    SELECT repository_id, day, name FROM tag_days WHERE day < $1 ORDER BY day LIMIT $2) RETURNING day`
	forgetStep = 1000
)

// The locks of PostgreSQL: first on the uses of images of the path, which imageuse.Queue locks too, then on the
// repository, which pushes share, then on the tags, as deletions of tags lock them.
const (
	lockTimeout    = `SET LOCAL lock_timeout = '300ms'`
	lockUses       = `SELECT pg_advisory_xact_lock(` + imageuse.LockKey + `$1::text` + imageuse.LockEnd + `)`
	lockRepository = `SELECT 1 FROM repositories WHERE id = $1 FOR UPDATE`
	orderTags      = `SELECT gc_order_tags($1::bigint, $2::text[], NULL)`
)

var deleteTags = sqldb.WithLists(`DELETE FROM tags WHERE repository_id = $1 AND name IN LIST($2, text)`)
