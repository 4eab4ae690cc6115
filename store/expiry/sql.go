package expiry

import "github.com/exeunt/exeunt/sqldb"

// The statements by which cascades are counted and leave the archive. Lists are
// arguments on both engines, so a statement has one plan.
const (
	// uncounted finds the end of the next rows to count.
	uncounted = `
SELECT count(*), coalesce(max(id), 0) FROM (
    SELECT id FROM archive WHERE id > (SELECT revision FROM archive_counted) ORDER BY id LIMIT $1) AS next`
	anyUncounted = `SELECT 1 FROM archive WHERE id > (SELECT revision FROM archive_counted) LIMIT 1`
	setCounted   = `UPDATE archive_counted SET revision = $1`

	// countCascades adds the rows up to $1 to their cascades. A cascade belongs to the
	// namespace of its root; one of a DeleteCollection has none, and its objects have one namespace.
	countCascadesSQLite   = countCascades1 + `substr(cascade, 1, instr(cascade || '.', '.') - 1)` + countCascades2
	countCascadesPostgres = countCascades1 + `split_part(cascade, '.', 1)` + countCascades2
	countCascades1        = `
INSERT INTO archive_cascades AS c (id, namespace, objects, bytes, removed_at, restored_at)
SELECT g.cascade, coalesce(g.at_root,
        (SELECT r.namespace FROM archive r WHERE r.uid = g.root AND r.cascade = g.cascade LIMIT 1),
        (SELECT CASE WHEN o.kind = 'namespaces' THEN o.name ELSE o.namespace END FROM objects o WHERE o.uid = g.root),
        g.namespace), g.objects, g.bytes, g.removed_at, g.restored_at
FROM (
    SELECT a.cascade, a.root, min(CASE WHEN a.uid = a.root THEN a.namespace END) AS at_root, min(a.namespace) AS namespace,
        count(*) AS objects, sum(a.size) AS bytes, max(a.removed_at) AS removed_at, CASE WHEN count(a.restored_as) > 0 THEN 0 END AS restored_at
    FROM (
        SELECT uid, cascade, namespace, size, removed_at, restored_as, `
	countCascades2 = ` AS root
        FROM archive WHERE id > (SELECT revision FROM archive_counted) AND id <= $1
    ) a GROUP BY a.cascade, a.root
) g WHERE TRUE
ON CONFLICT (id) DO UPDATE SET
    namespace = CASE WHEN c.objects = 0 THEN excluded.namespace ELSE c.namespace END,
    objects = c.objects + excluded.objects, bytes = c.bytes + excluded.bytes,
    removed_at = CASE WHEN excluded.removed_at > c.removed_at THEN excluded.removed_at ELSE c.removed_at END,
    restored_at = coalesce(c.restored_at, excluded.restored_at)`
	countSpans = `
INSERT INTO archive_spans (cascade, namespace)
SELECT DISTINCT a.cascade, a.namespace FROM archive a JOIN archive_cascades c ON c.id = a.cascade
WHERE a.id > (SELECT revision FROM archive_counted) AND a.id <= $1 AND a.namespace <> c.namespace
ON CONFLICT (cascade, namespace) DO NOTHING`

	// oldestByNamespace lists the namespaces that have cascades, by skipping through
	// archive_cascades_namespace_idx, each with the time of its oldest one.
	oldestByNamespace = `
WITH RECURSIVE n (namespace) AS (
    SELECT min(namespace) FROM archive_cascades WHERE leaving IS NULL
    UNION ALL
    SELECT (SELECT min(c.namespace) FROM archive_cascades c WHERE c.leaving IS NULL AND c.namespace > n.namespace) FROM n WHERE n.namespace IS NOT NULL
)
SELECT n.namespace, (SELECT min(c.removed_at) FROM archive_cascades c WHERE c.leaving IS NULL AND c.namespace = n.namespace)
FROM n WHERE n.namespace IS NOT NULL`
	// namespaceBody is the body of a Namespace: the current one, or else the last archived.
	namespaceBody = `
SELECT c.body FROM objects o JOIN changes c ON c.revision = o.revision WHERE o.kind = 'namespaces' AND o.namespace = '' AND o.name = $1
UNION ALL
SELECT body FROM (
    SELECT c.body FROM archive a JOIN changes c ON c.revision = a.body_revision
    WHERE a.kind = 'namespaces' AND a.name = $1 AND a.namespace = $1 ORDER BY a.id DESC LIMIT 1) AS gone
LIMIT 1`

	// busy: objects of the cascade are DELETING, or a restore of it is under way. With coalesce SQLite
	// uses objects_cascade_idx: a column would be compared as text, and the index is on an expression.
	busy = `(coalesce(c.restored_at > $2, FALSE) OR EXISTS (
    SELECT 1 FROM objects o WHERE coalesce(o.deletion_cascade, o.uid) = coalesce(c.id, '') AND o.deletion_time IS NOT NULL))`
	leaverColumns = `SELECT c.id, c.objects, c.bytes, c.removed_at, ` + busy + `,
    EXISTS (SELECT 1 FROM archive_spans s WHERE s.cascade = c.id) FROM archive_cascades c WHERE c.namespace = $1 AND c.leaving IS NULL`
	// dueCascades reads what a namespace removed up to $3, behind the cascade $5 of the time $4.
	dueCascades = leaverColumns + ` AND c.removed_at <= $3 AND (c.removed_at, c.id) > ($4, $5)
ORDER BY c.removed_at, c.id LIMIT $6`
	// evictable reads the oldest cascades of a namespace, without its newest one.
	evictable = leaverColumns + ` AND c.id <> (
    SELECT id FROM archive_cascades WHERE namespace = $1 AND leaving IS NULL ORDER BY removed_at DESC, id DESC LIMIT 1)
ORDER BY c.removed_at, c.id LIMIT $3`
	// timesOf reads the namespaces of a cascade, with its last removal.
	timesOf = `
SELECT namespace, removed_at FROM archive_cascades WHERE id = $1 AND objects > 0
UNION ALL
SELECT s.namespace, 0 FROM archive_spans s WHERE s.cascade = $1`
	spansOf        = `SELECT namespace FROM archive_spans WHERE cascade = $1`
	namespaceBytes = `SELECT namespace, CAST(sum(bytes) AS bigint) FROM archive_cascades WHERE leaving IS NULL GROUP BY namespace`
	archivedBytes  = `SELECT archived FROM revision`

	anyLeaving      = `SELECT 1 FROM archive_cascades WHERE leaving IS NOT NULL LIMIT 1`
	leavingCascades = `SELECT id, objects, leaving = $2 FROM archive_cascades WHERE leaving IS NOT NULL ORDER BY objects = 0, id LIMIT $1`

	forgottenColumns = `SELECT id, coalesce(body_revision, 0), size, coalesce(body_replaced, id) FROM archive`
	dropBytes        = `UPDATE revision SET archived = archived - $1`
)

// By engine, for lists.
var (
	countCascades = map[sqldb.Engine]string{sqldb.SQLite: countCascadesSQLite, sqldb.Postgres: countCascadesPostgres}
	markLeaving   = sqldb.WithLists(`UPDATE archive_cascades SET leaving = $2 WHERE id IN LIST($1, text)`)
	// leavingRows reads rows of leaving cascades, by archive_cascade_idx and archive_uid_idx.
	leavingRows = map[sqldb.Engine]string{
		sqldb.SQLite: `
SELECT a.id, coalesce(a.body_revision, 0), a.size, coalesce(a.body_replaced, a.id)
FROM json_each($1) j CROSS JOIN archive_cascades c ON c.id = j.value CROSS JOIN archive a ON a.cascade = c.id AND a.cascade <> a.uid WHERE a.id <= c.leaving
UNION ALL
SELECT a.id, coalesce(a.body_revision, 0), a.size, coalesce(a.body_replaced, a.id)
FROM json_each($1) j CROSS JOIN archive_cascades c ON c.id = j.value CROSS JOIN archive a ON a.uid = c.id AND a.cascade = a.uid WHERE a.id <= c.leaving
LIMIT $2`,
		sqldb.Postgres: `
SELECT a.* FROM unnest($1::text[]) AS j (id) CROSS JOIN LATERAL (SELECT id, leaving FROM archive_cascades WHERE id = j.id OFFSET 0) AS c
CROSS JOIN LATERAL (
    SELECT * FROM (` + forgottenColumns + ` WHERE cascade = c.id AND cascade <> uid AND id <= c.leaving LIMIT $2) AS below
    UNION ALL
    SELECT * FROM (` + forgottenColumns + ` WHERE uid = c.id AND cascade = uid AND id <= c.leaving OFFSET 0) AS alone
) AS a LIMIT $2`,
	}
	// hasLeft ends the leaving of cascades without rows up to their revision. One that left while it ran
	// keeps its row until its last removal is before $3: what it still removes leaves too. hasOthers
	// is for those that removed more since.
	hasLeft = sqldb.WithLists(`
DELETE FROM archive_cascades WHERE id IN LIST($1, text) AND objects = 0 AND (leaving < $2 OR removed_at <= $3 AND NOT EXISTS (
    SELECT 1 FROM objects o WHERE coalesce(o.deletion_cascade, o.uid) = coalesce(archive_cascades.id, '') AND o.deletion_time IS NOT NULL))`)
	hasOthers      = sqldb.WithLists(`UPDATE archive_cascades SET leaving = NULL WHERE id IN LIST($1, text) AND leaving < $2`)
	deleteCascades = sqldb.WithLists(`DELETE FROM archive_cascades WHERE id IN LIST($1, text)`)
	// countPurged records how many rows of a cascade a client purges.
	countPurged = sqldb.WithLists(`
INSERT INTO archive_cascades AS c (id, purged) SELECT cascade, count(*) FROM archive WHERE id IN LIST($1, bigint) GROUP BY cascade
ON CONFLICT (id) DO UPDATE SET purged = c.purged + excluded.purged`)
	forgottenByID  = sqldb.WithLists(forgottenColumns + ` WHERE id IN LIST($1, bigint)`)
	deleteBodies   = sqldb.WithLists(`DELETE FROM changes WHERE revision IN LIST($1, bigint)`)
	deleteArchived = sqldb.WithLists(`DELETE FROM archive WHERE id IN LIST($1, bigint)`)
)

const anyDropped = `SELECT 1 FROM dropped_references LIMIT 1`

// forgetDropped deletes references that can no longer be restored: the owner or
// the dependent is neither in objects nor in the archive. Indexes: unique index
// on objects; archive_uid_idx.
const forgetDropped = `
DELETE FROM dropped_references WHERE
    NOT EXISTS (SELECT 1 FROM archive a WHERE a.uid = owner_uid) AND NOT EXISTS (SELECT 1 FROM objects o WHERE o.uid = owner_uid)
    OR NOT EXISTS (SELECT 1 FROM objects o WHERE o.uid = dependent_uid) AND NOT EXISTS (SELECT 1 FROM archive a WHERE a.uid = dependent_uid)`

// unusedKinds selects the kinds whose definition was removed before $1 and that
// have no objects in the archive. It may scan the archive once per kind. If a
// definition is removed again in between, its removed_at differs and forgetKind
// leaves the row.
const (
	unusedKinds = `
SELECT k.storage, k.removed_at FROM archive_kinds k
WHERE k.removed_at <= $1 AND NOT EXISTS (SELECT 1 FROM archive a WHERE a.kind = k.storage)`
	forgetKind = `DELETE FROM archive_kinds WHERE storage = $1 AND removed_at = $2`
)
