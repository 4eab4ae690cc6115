package history

import (
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/cascades"
)

// The statements about the history, the same on both engines.

const (
	readMoved = `SELECT moved FROM revision`

	// readChanges reads the log after $1 up to $2, with the states that the changes replaced.
	readChanges = `
SELECT c.revision, c.type, coalesce(c.at, 0), coalesce(c.author, ''), coalesce(c.previous, 0), c.object, c.uid, c.kind, c.namespace, c.name,
    coalesce(p.type, 0), coalesce(p.at, 0), coalesce(p.author, ''), p.body
FROM changes c LEFT JOIN changes p ON p.revision = c.previous
WHERE c.revision > $1 AND c.revision <= $2
ORDER BY c.revision LIMIT $3`

	insertChunk = `
INSERT INTO history (object, uid, kind, namespace, name, first, until, ended_at, open, versions, size, body)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`
	updateChunk = `UPDATE history SET until = $2, ended_at = $3, open = $4, versions = $5, size = $6, body = $7 WHERE id = $1`

	// insertTime: a later revision of the same second replaces an earlier one.
	insertTime = `INSERT INTO history_times (at, revision) VALUES ($1, $2) ON CONFLICT (at) DO UPDATE SET revision = excluded.revision`

	deleteOf = `DELETE FROM history WHERE uid = $1` // index history_uid_idx

	// addBound raises the bound of a kind and a namespace, and adds to the bytes.
	addBound = `
INSERT INTO history_bounds AS b (kind, namespace, revision, bytes) VALUES ($1, $2, $3, $4)
ON CONFLICT (kind, namespace) DO UPDATE SET
    revision = CASE WHEN excluded.revision > b.revision THEN excluded.revision ELSE b.revision END, bytes = b.bytes + excluded.bytes`
)

var (
	// openChunks reads the rows that get the next versions of objects: index history_open_idx.
	openChunks = sqldb.WithLists(`
SELECT id, object, uid, kind, namespace, name, first, until, versions, size, body FROM history WHERE open = 1 AND object IN LIST($1, bigint)`)
	boundsOf    = sqldb.WithLists(`SELECT namespace, revision FROM history_bounds WHERE kind = $1 AND namespace IN LIST($2, text)`)
	existing    = sqldb.WithLists(`SELECT id FROM history WHERE id IN LIST($1, bigint)`)
	closeChunks = sqldb.WithLists(`UPDATE history SET open = 0 WHERE id IN LIST($1, bigint)`)
	chunksByID  = sqldb.WithLists(`SELECT id, uid, kind, namespace, name, body FROM history WHERE id IN LIST($1, bigint)`)
	// purgedOf reads what the history has of rows of the archive whose objects do not exist, in the namespace of their key.
	purgedOf = sqldb.WithLists(`
SELECT a.id, a.uid, a.kind, CASE WHEN a.kind = 'namespaces' THEN '' ELSE a.namespace END,
    coalesce((SELECT sum(h.size) FROM history h WHERE h.uid = a.uid), 0)
FROM archive a
WHERE a.id IN LIST($1, bigint) AND a.id > 0 AND NOT EXISTS (SELECT 1 FROM objects o WHERE o.uid = a.uid)
    AND NOT EXISTS (SELECT 1 FROM archive l WHERE l.uid = a.uid AND l.id > a.id)`)
	deleteByID = sqldb.WithLists(`DELETE FROM history WHERE id IN LIST($1, bigint)`)
)

// chunksOf reads the rows of the objects of one name that begin before revision $4, the newest first: index
// history_key_idx.
const chunksOf = `
SELECT id, until, uid, body FROM history
WHERE kind = $1 AND namespace = $2 AND name = $3 AND first < $4
ORDER BY first DESC LIMIT $5`

const (
	// archivedAt reads the last body of a removed object, if it was the newest one at revision $4: index archive_name_idx.
	archivedAt = `
SELECT a.uid, c.revision, c.body FROM archive a JOIN changes c ON c.revision = a.body_revision
WHERE a.name = $3 AND a.namespace = $1 AND a.kind = $2 AND a.body_revision <= $4 AND coalesce(a.body_replaced, a.id) > $4` + cascades.Kept + `
LIMIT 1`
	// firstRemoval is the time of the oldest row of the archive.
	firstRemoval = `SELECT removed_at FROM archive ORDER BY id LIMIT 1`

	// boundOf and boundOfAll: from which revision on states of a kind are complete, in a namespace or in all.
	boundOf    = `SELECT coalesce(max(revision), 0) FROM history_bounds WHERE kind IN ('', $1) AND namespace IN ('*', $2)`
	boundOfAll = `SELECT coalesce(max(revision), 0) FROM history_bounds WHERE kind IN ('', $1)`

	// markAt finds the last revision that was moved by the end of second $1.
	markAt = `SELECT revision FROM history_times WHERE at <= $1 ORDER BY at DESC LIMIT 1`
	// timeOf finds when the newest change up to revision $1 was made, of those after $2.
	timeOf = `SELECT at FROM changes WHERE revision <= $1 AND revision > $2 AND at IS NOT NULL ORDER BY revision DESC LIMIT 1`
	// oldestTime finds when the oldest change was made of which the history or the log, after $1, has the time.
	oldestTime = `
SELECT coalesce((SELECT min(at) * 1000 FROM history_times), (SELECT at FROM changes WHERE revision > $1 AND at IS NOT NULL ORDER BY revision LIMIT 1), 0)`
	revisions = `SELECT current, compacted, moved FROM revision`
)

// What leaves.
const (
	spaces = `SELECT namespace, bytes FROM history_bounds WHERE kind = '' AND namespace <> '*' AND bytes > 0`
	// oldest reads the rows of a namespace that ended by $2, the oldest first: index history_namespace_idx. A
	// row of an object that can be restored stays.
	oldest = `
SELECT h.id, h.until, h.versions, h.size FROM history h
WHERE h.namespace = $1 AND h.ended_at <= $2 AND NOT EXISTS (SELECT 1 FROM archive a WHERE a.uid = h.uid)
ORDER BY h.ended_at, h.id LIMIT $3`
	// oldestOfAll is oldest with the rows of objects that can be restored.
	oldestOfAll = `
SELECT h.id, h.until, h.versions, h.size FROM history h
WHERE h.namespace = $1 AND h.ended_at <= $2
ORDER BY h.ended_at, h.id LIMIT $3`

	namespaceBody = `
SELECT c.body FROM objects o JOIN changes c ON c.revision = o.revision
WHERE o.kind = 'namespaces' AND o.namespace = '' AND o.name = $1`

	countMarks  = `SELECT count(*) FROM (SELECT 1 FROM history_times WHERE at <= $1 LIMIT $2) AS old`
	deleteMarks = `DELETE FROM history_times WHERE at < (SELECT max(t.at) FROM history_times t WHERE t.at <= $1)`
	// deleteBounds deletes the bounds that the bound of the server makes superfluous.
	deleteBounds = `DELETE FROM history_bounds WHERE NOT (kind = '' AND namespace = '*') AND bytes = 0 AND revision <= $1`
)
