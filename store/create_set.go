package store

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/due"
	"github.com/exeunt/exeunt/store/imageuse"
	"github.com/exeunt/exeunt/store/seal"
)

var noState state // of an object before it is created

// addCreates adds the statements of creates: three or four for a set.
func (q *statements) addCreates(rest []*effect) {
	for len(rest) > 0 {
		n := leadingCreates(q.engine, rest)
		if n >= minSet {
			q.addCreateSet(rest[:n])
		} else {
			n = max(n, 1)
			q.addEach(rest[:n])
		}
		rest = rest[n:]
	}
}

// leadingCreates counts the creates at the beginning that one set can write.
func leadingCreates(engine sqldb.Engine, effects []*effect) (n int) {
	bytes := 0
	for _, f := range effects {
		bytes += len(f.stored)
		if !f.inSet(engine) || n > 0 && bytes > maxSetBytes {
			break
		}
		n++
	}
	return n
}

// inSet reports whether a set can write the effect: it is a create without the columns of
// a deletion, and it drops no references. Texts go to SQLite as JSON, which has no place
// for NUL and for invalid UTF-8.
func (f *effect) inSet(engine sqldb.Engine) bool {
	if f.Type != Created || f.deletionTime != nil || f.graceSeconds != nil || len(f.restores.Dropped) > 0 || f.restores.Had {
		return false
	}
	if engine == sqldb.Postgres {
		return true
	}
	for _, o := range f.owners {
		if !inJSON(o.uid, o.group, o.kind, o.name) {
			return false
		}
	}
	return inJSON(f.uid)
}

// inJSON reports whether SQLite reads texts from JSON as they are.
func inJSON(texts ...string) bool {
	return !slices.ContainsFunc(texts, func(s string) bool { return !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 })
}

// addCreateSet adds the statements of creates: three or four for the set. As with
// effect.queue, what a create restores comes before its insert.
func (q *statements) addCreateSet(run []*effect) {
	b, engine := &q.queued, q.engine
	queueRestored(b, engine, run)
	var references referenceRows
	for _, f := range run {
		references.add(f)
	}
	if engine == sqldb.Postgres {
		n := len(run)
		ids, finalizing, bodies := make([]int64, n), make([]int64, n), make([][]byte, n)
		uids, kinds, namespaces, names, cascades := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]*string, n)
		for i, f := range run {
			ids[i], uids[i], kinds[i], namespaces[i], names[i] = f.id, f.uid, f.key.Kind, f.key.Namespace, f.key.Name
			finalizing[i], bodies[i], cascades[i] = f.finalizing, f.stored, nullable[string](f.ownColumn())
		}
		b.Exec(createSetPostgres, ids, uids, kinds, namespaces, names, finalizing, cascades)
		b.Exec(createdSetPostgres, ids, uids, kinds, namespaces, names, bodies, q.at, authorsOf(run))
		references.queue(b)
		return
	}
	heads, places := make([][6]any, len(run)), make([][3]any, len(run))
	var bodies []byte
	for i, f := range run {
		heads[i] = [6]any{f.uid, f.key.Kind, f.key.Namespace, f.key.Name, f.finalizing, f.ownColumn()}
		places[i] = [3]any{len(bodies) + 1, len(f.stored), f.by()}
		bodies = append(bodies, f.stored...)
	}
	b.Exec(createSetSQLite, sqldb.JSON(heads), run[0].revision)
	b.Exec(createdSetSQLite, sqldb.JSON(places), run[0].revision, bodies, q.at)
	if len(references.dependents) > 0 {
		b.Exec(ownSetSQLite, references.json())
	}
}

// queueRestored adds the statements that mark what creates restore. They come before the inserts, whose triggers read it.
func queueRestored(b *sqldb.Batch, engine sqldb.Engine, run []*effect) {
	byRow := map[int64]*effect{}
	var rows []int64
	var uids []string
	for _, f := range run {
		if f.restores.Row != 0 {
			byRow[f.restores.Row] = f
			rows, uids = append(rows, f.restores.Row), append(uids, f.uid)
		}
	}
	if len(byRow) == 0 {
		return
	}
	statement, args := markRestoredSetPostgres, []any{rows, uids}
	if engine == sqldb.SQLite {
		marks := make([][2]any, len(rows))
		for i := range rows {
			marks[i] = [2]any{rows[i], uids[i]}
		}
		statement, args = markRestoredSetSQLite, []any{sqldb.JSON(marks)}
	}
	b.Exec(holdCascades[engine], sqldb.List(engine, rows), run[0].at)
	b.Query(func(row sqldb.Row) error {
		var id int64
		var awaited bool
		err := row.Scan(&id, &awaited)
		if f := byRow[id]; f != nil {
			f.restored, f.awaited = true, awaited
		}
		return err
	}, statement, args...)
}

// queue adds the statement that inserts the rows, on PostgreSQL.
func (r *referenceRows) queue(b *sqldb.Batch) {
	if len(r.dependents) > 0 {
		b.Exec(ownSetPostgres, r.dependents, r.owners, r.blocking, r.controller, r.groups, r.kinds, r.names)
	}
}

// json is the rows as ownSetSQLite takes them.
func (r *referenceRows) json() string {
	rows := make([][7]any, len(r.dependents))
	for i := range rows {
		rows[i] = [7]any{r.dependents[i], r.owners[i], r.blocking[i], r.controller[i], r.groups[i], r.kinds[i], r.names[i]}
	}
	return sqldb.JSON(rows)
}

// queueLoads adds the statement that reads the objects of the view. It reports
// whether one of their kinds is sealed.
func (v *view) queueLoads(b *sqldb.Batch, engine sqldb.Engine, keys *seal.Keys) (sealed bool) {
	all := make([]object.Key, 0, len(v.objects))
	for key := range v.objects {
		all = append(all, key)
		sealed = sealed || keys.Seals(key.Kind)
	}
	load := func(key object.Key, o *state) (err error) {
		o.stored = len(o.body)
		o.body, err = keys.Open(seal.Object{Key: key, UID: o.uid}, o.body)
		v.objects[key] = o
		return err
	}
	if len(all) < minSet {
		for _, key := range all {
			b.Query(func(row sqldb.Row) error {
				o := &state{}
				if err := row.Scan(&o.id, &o.uid, &o.revision, &o.deleting, &o.own, &o.body); err != nil {
					return err
				}
				return load(key, o)
			}, loadObject, key.Kind, key.Namespace, key.Name)
		}
		return sealed
	}
	statement, args := loadSet(engine, all)
	b.Query(func(row sqldb.Row) error {
		o, at := &state{}, int64(0)
		if err := row.Scan(&at, &o.id, &o.uid, &o.revision, &o.deleting, &o.own, &o.body); err != nil {
			return err
		}
		return load(all[at], o)
	}, statement, args...)
	return sealed
}

func loadSet(engine sqldb.Engine, all []object.Key) (statement string, args []any) {
	if engine == sqldb.SQLite {
		keys := make([][3]string, len(all))
		for i, key := range all {
			keys[i] = [3]string{key.Kind, key.Namespace, key.Name}
		}
		return loadSetSQLite, []any{sqldb.JSON(keys)}
	}
	kinds, namespaces, names := make([]string, len(all)), make([]string, len(all)), make([]string, len(all))
	for i, key := range all {
		kinds[i], namespaces[i], names[i] = key.Kind, key.Namespace, key.Name
	}
	return loadSetPostgres, []any{kinds, namespaces, names}
}

// The statements that remove many objects at once. $1 is their ids, as JSON on
// SQLite and as an array on PostgreSQL; the first is removed at revision $2, the
// others at the revisions after it. They read the heads, so deleteSet comes last.
// On PostgreSQL, OFFSET 0 forces one index lookup per row, whatever the
// statistics say: they may be from a time when the tables were empty.

// archiveSet is insertArchived for many. On SQLite the causes are parameters if all have the same, and else in the list.
var (
	archiveSetSQLite  = archiveSet("j.value", "$4", "$5", "$7", "$8")
	archiveEachSQLite = archiveSet("j.value ->> 0", "j.value ->> 1", "j.value ->> 2", "j.value ->> 3", "j.value ->> 4")
	burySetSQLite     = burySet("j.value", "$4")
	buryEachSQLite    = burySet("j.value ->> 6", "j.value ->> 5")
)

func archiveSet(id, actor, cascade, requester, request string) string {
	return `
INSERT INTO archive (id, uid, kind, namespace, name, body_revision, removed_at, actor, cascade, size, requester, request_id, body_replaced, confirmer)
SELECT $2 + j.key, o.uid, o.kind, CASE WHEN o.kind = 'namespaces' THEN o.name ELSE o.namespace END, o.name,
    CASE WHEN $6 OR o.kind <> 'secrets' THEN coalesce(o.asked_body, o.revision) END, $3,
    coalesce(o.deletion_actor, ` + actor + `), coalesce(o.deletion_cascade, CASE WHEN o.deletion_time IS NULL THEN ` + cascade + ` END, o.own_cascade, o.uid),
    CASE WHEN $6 OR o.kind <> 'secrets' THEN octet_length(c.body) ELSE 0 END,
    CASE WHEN o.deletion_time IS NULL THEN ` + requester + ` ELSE o.deletion_requester END,
    CASE WHEN o.deletion_time IS NULL THEN ` + request + ` ELSE o.deletion_request_id END, o.asked_at, o.deletion_confirmer
FROM json_each($1) j JOIN objects o ON o.id = ` + id + ` JOIN changes c ON c.revision = o.revision`
}

// burySet writes the tombstones.
func burySet(id, author string) string {
	return `
INSERT INTO changes (revision, object, uid, kind, namespace, name, type, previous, at, author)
SELECT $2 + j.key, o.id, o.uid, o.kind, o.namespace, o.name, 3, o.revision, $3, ` + author + `
FROM json_each($1) j JOIN objects o ON o.id = ` + id
}

const (
	archiveSetPostgres = `
INSERT INTO archive (id, uid, kind, namespace, name, body_revision, removed_at, actor, cascade, size, requester, request_id, body_replaced, confirmer)
SELECT $2 + j.place - 1, o.uid, o.kind, CASE WHEN o.kind = 'namespaces' THEN o.name ELSE o.namespace END, o.name,
    CASE WHEN $6 OR o.kind <> 'secrets' THEN coalesce(o.asked_body, o.revision) END, $3,
    coalesce(o.deletion_actor, j.actor), coalesce(o.deletion_cascade, CASE WHEN o.deletion_time IS NULL THEN j.cascade END, o.own_cascade, o.uid),
    CASE WHEN $6 OR o.kind <> 'secrets' THEN octet_length(c.body) ELSE 0 END,
    CASE WHEN o.deletion_time IS NULL THEN j.requester ELSE o.deletion_requester END,
    CASE WHEN o.deletion_time IS NULL THEN j.request_id ELSE o.deletion_request_id END, o.asked_at, o.deletion_confirmer
FROM unnest($1::bigint[], $4::text[], $5::text[], $7::text[], $8::text[]) WITH ORDINALITY AS j (id, actor, cascade, requester, request_id, place)
CROSS JOIN LATERAL (SELECT * FROM objects WHERE id = j.id OFFSET 0) AS o
CROSS JOIN LATERAL (SELECT body FROM changes WHERE revision = o.revision OFFSET 0) AS c`

	burySetPostgres = `
INSERT INTO changes (revision, object, uid, kind, namespace, name, type, previous, at, author)
SELECT $2 + j.place - 1, o.id, o.uid, o.kind, o.namespace, o.name, 3, o.revision, $3, j.author
FROM unnest($1::bigint[], $4::text[]) WITH ORDINALITY AS j (id, author, place)
CROSS JOIN LATERAL (SELECT * FROM objects WHERE id = j.id OFFSET 0) AS o`
)

// deleteSet: the schema also deletes the objects' rows in owners, if any are left.
var deleteSet = sqldb.WithLists(`DELETE FROM objects WHERE id IN LIST($1, bigint)`)

// disownSet deletes the rows of owners of many objects.
var disownSet = sqldb.WithLists(`DELETE FROM owners WHERE dependent IN LIST($1, bigint)`)

// The statements that rewrite many objects at once on SQLite: insertChange,
// touchObject or updateObject, and deleteOwners for many. logSet comes first: it
// reads the previous revision. Its $1 has for each object the id, and the offset
// and the length of its body in $3.
const (
	logSetSQLite = `
INSERT INTO changes (revision, object, uid, kind, namespace, name, type, previous, body, at, author)
SELECT $2 + j.key, o.id, o.uid, o.kind, o.namespace, o.name, 2, o.revision, substr($3, j.value ->> 1, j.value ->> 2), $4, j.value ->> 3
FROM json_each($1) j JOIN objects o ON o.id = j.value ->> 0`
	touchSetSQLite = `
UPDATE objects SET revision = $2 + j.key, finalizing = $3 FROM json_each($1) j WHERE objects.id = j.value`
	rewriteSetSQLite = `
UPDATE objects SET revision = $2 + j.key, deletion_time = $3, grace_seconds = $4, finalizing = $5,
    deletion_actor = CASE WHEN $3 IS NULL THEN NULL ELSE coalesce(deletion_actor, $6) END,
    deletion_cascade = CASE WHEN $3 IS NULL THEN NULL ELSE coalesce(deletion_cascade, $7, own_cascade) END,
    deletion_requester = CASE WHEN $3 IS NULL THEN NULL ELSE coalesce(deletion_requester, $8) END,
    deletion_request_id = CASE WHEN $3 IS NULL THEN NULL ELSE coalesce(deletion_request_id, $9) END,
    deletion_confirmer = CASE WHEN $3 IS NULL THEN NULL ELSE deletion_confirmer END,
    asked_body = CASE WHEN $3 IS NULL THEN NULL WHEN deletion_time IS NULL THEN revision ELSE asked_body END,
    asked_at = CASE WHEN $3 IS NULL THEN NULL WHEN deletion_time IS NULL THEN $2 + j.key ELSE asked_at END
FROM json_each($1) j WHERE objects.id = j.value`
)

// The statements that rewrite many objects at once on PostgreSQL: touchObject, updateObject,
// insertChange, deleteOwners and insertOwner for many. The arrays are the columns
// of the rows, and no id is in them twice.
const (
	touchSetPostgres = `
UPDATE objects o SET revision = r.revision, finalizing = r.finalizing
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS r (id, revision, finalizing) WHERE o.id = r.id`
	rewriteSetPostgres = `
UPDATE objects o SET revision = r.revision, deletion_time = r.deletion_time, grace_seconds = r.grace_seconds, finalizing = r.finalizing,
    deletion_actor = CASE WHEN r.deletion_time IS NULL THEN NULL ELSE coalesce(o.deletion_actor, r.actor) END,
    deletion_cascade = CASE WHEN r.deletion_time IS NULL THEN NULL ELSE coalesce(o.deletion_cascade, r.cascade, o.own_cascade) END,
    deletion_requester = CASE WHEN r.deletion_time IS NULL THEN NULL ELSE coalesce(o.deletion_requester, r.requester) END,
    deletion_request_id = CASE WHEN r.deletion_time IS NULL THEN NULL ELSE coalesce(o.deletion_request_id, r.request_id) END,
    deletion_confirmer = CASE WHEN r.deletion_time IS NULL THEN NULL ELSE o.deletion_confirmer END,
    asked_body = CASE WHEN r.deletion_time IS NULL THEN NULL WHEN o.deletion_time IS NULL THEN o.revision ELSE o.asked_body END,
    asked_at = CASE WHEN r.deletion_time IS NULL THEN NULL WHEN o.deletion_time IS NULL THEN r.revision ELSE o.asked_at END
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::text[], $8::text[], $9::text[])
    AS r (id, revision, deletion_time, grace_seconds, finalizing, actor, cascade, requester, request_id)
WHERE o.id = r.id`
	logSetPostgres = `
INSERT INTO changes (revision, object, uid, kind, namespace, name, type, previous, body, at, author)
SELECT r.revision, o.id, o.uid, o.kind, o.namespace, o.name, 2, r.previous, r.body, $5, r.author
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[], $6::text[]) AS r (id, revision, previous, body, author)
CROSS JOIN LATERAL (SELECT * FROM objects WHERE id = r.id OFFSET 0) AS o`
	ownSetPostgres = `
INSERT INTO owners (dependent, owner_uid, blocking, controller, owner_group, owner_kind, owner_name)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::boolean[], $4::boolean[], $5::text[], $6::text[], $7::text[])`
)

// The statements that load and create many objects at once: loadObject, insertObject,
// insertChange and insertOwner for many. An object's id is the revision of
// its creation. On SQLite the objects are created at the revisions from $2 on.
const (
	loadSetSQLite = `
SELECT j.key, o.id, o.uid, o.revision, o.deletion_time IS NOT NULL, coalesce(o.own_cascade, ''), c.body
FROM json_each($1) j CROSS JOIN objects o ON o.kind = j.value ->> 0 AND o.namespace = j.value ->> 1 AND o.name = j.value ->> 2
CROSS JOIN changes c ON c.revision = o.revision`
	loadSetPostgres = `
SELECT q.n - 1, o.id, o.uid, o.revision, o.deletion_time IS NOT NULL, coalesce(o.own_cascade, ''), c.body
FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS q (kind, namespace, name, n)
CROSS JOIN LATERAL (SELECT * FROM objects WHERE kind = q.kind AND namespace = q.namespace AND name = q.name OFFSET 0) AS o
CROSS JOIN LATERAL (SELECT body FROM changes WHERE revision = o.revision OFFSET 0) AS c`

	createSetSQLite = `
INSERT INTO objects (id, uid, kind, namespace, name, revision, finalizing, own_cascade)
SELECT $2 + j.key, j.value ->> 0, j.value ->> 1, j.value ->> 2, j.value ->> 3, $2 + j.key, j.value ->> 4, j.value ->> 5 FROM json_each($1) j`
	createSetPostgres = `
INSERT INTO objects (id, uid, kind, namespace, name, revision, finalizing, own_cascade)
SELECT id, uid, kind, namespace, name, id, finalizing, own_cascade
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[]) AS r (id, uid, kind, namespace, name, finalizing, own_cascade)`

	// createdSet: $1 has on SQLite the offset and the length of each body in $3.
	createdSetSQLite = `
INSERT INTO changes (revision, object, uid, kind, namespace, name, type, body, at, author)
SELECT o.id, o.id, o.uid, o.kind, o.namespace, o.name, 1, substr($3, j.value ->> 0, j.value ->> 1), $4, j.value ->> 2
FROM json_each($1) j CROSS JOIN objects o ON o.id = $2 + j.key`
	createdSetPostgres = `
INSERT INTO changes (revision, object, uid, kind, namespace, name, type, body, at, author)
SELECT id, id, uid, kind, namespace, name, 1, body, $7, author
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[], $8::text[]) AS r (id, uid, kind, namespace, name, body, author)`

	ownSetSQLite = `
INSERT INTO owners (dependent, owner_uid, blocking, controller, owner_group, owner_kind, owner_name)
SELECT j.value ->> 0, j.value ->> 1, j.value ->> 2, j.value ->> 3, j.value ->> 4, j.value ->> 5, j.value ->> 6 FROM json_each($1) j`

	// markRestoredSet records the uids of restored objects in their rows, if these still exist, and returns whether dropped
	// references to the objects exist.
	markRestoredSetSQLite = `
UPDATE archive SET restored_as = j.value ->> 1 FROM json_each($1) j WHERE archive.id = j.value ->> 0` + restorable + `
RETURNING id, EXISTS (SELECT 1 FROM dropped_references d WHERE d.owner_uid = archive.uid)`
	markRestoredSetPostgres = `
UPDATE archive SET restored_as = r.uid FROM unnest($1::bigint[], $2::text[]) AS r (id, uid) WHERE archive.id = r.id` + restorable + `
RETURNING archive.id, EXISTS (SELECT 1 FROM dropped_references d WHERE d.owner_uid = archive.uid)`
)

// minSet is the smallest set of effects: fewer are cheaper one by one.
const minSet = 4

// statements turns effects into the statements that write them. A run of effects of one type
// becomes a few statements for all of them where the engine can: on PostgreSQL a statement costs
// several times what a row costs, and its triggers run once.
type statements struct {
	engine  sqldb.Engine
	archive archivist
	lives   due.Lifetimes
	// keepExpiries leaves the expiry rows of removed Events until they are due: the collector
	// may remove many.
	keepExpiries bool

	queued   sqldb.Batch
	archived int64 // bytes that the effects add to the archive
	at       int64 // changes.at of the effects; set when the lock is held
}

// addAll adds the statements of effects with consecutive revisions, in their order.
func (q *statements) addAll(effects []*effect) {
	for len(effects) > 0 {
		n := 1
		for n < len(effects) && effects[n].Type == effects[0].Type {
			n++
		}
		q.add(effects[:n])
		effects = effects[n:]
	}
}

// add is addAll for effects of one type.
func (q *statements) add(run []*effect) {
	if len(run) == 0 {
		return
	}
	switch run[0].Type {
	case Removed:
		q.supersede(run)
		q.addRemovals(run)
	case Updated:
		q.addRewrites(run)
	default:
		q.addCreates(run)
	}
	for _, f := range run {
		q.lives.Queue(&q.queued, f.life(), q.keepExpiries)
		if f.Type != Removed {
			imageuse.Queue(&q.queued, q.engine, f.key, f.uid, f.body, cmp.Or(f.before, &noState).body, f.at)
		}
		if f.confirms {
			q.queued.Exec(confirmObject, f.id, f.actor)
		}
	}
}

// addEach adds statements for each effect.
func (q *statements) addEach(run []*effect) {
	for i, f := range run {
		queueRestored(&q.queued, q.engine, run[i:i+1])
		q.archived += f.queue(&q.queued, q.archive, q.at)
	}
}

// ids is the list of ids as the engine's statements take it.
func (q *statements) ids(run []*effect) any {
	ids := make([]int64, len(run))
	for i, f := range run {
		ids[i] = f.id
	}
	return sqldb.List(q.engine, ids)
}
