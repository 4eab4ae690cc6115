package store

import (
	"strings"
	"unicode/utf8"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/seal"
)

// addCreates adds the statements of creates: three or four for a set.
func (q *statements) addCreates(rest []*effect) {
	for len(rest) > 0 {
		n := leadingCreates(q.engine, rest)
		if n >= minSet {
			queueCreates(&q.queued, q.engine, rest[:n])
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

// inSet says whether a set can write the effect: it is a create without the columns of
// a deletion, and it drops no references. Texts go to SQLite as JSON, which has no place
// for NUL and for invalid UTF-8.
func (f *effect) inSet(engine sqldb.Engine) bool {
	if f.Type != Created || f.deletionTime != nil || f.graceSeconds != nil || len(f.restores.Dropped) > 0 || f.restores.Had {
		return false
	}
	if engine == sqldb.Postgres {
		return true
	}
	for i := range f.owners {
		o := &f.owners[i]
		for _, s := range [...]string{o.uid, o.group, o.kind, o.name} {
			if !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 {
				return false
			}
		}
	}
	return utf8.ValidString(f.uid) && strings.IndexByte(f.uid, 0) < 0
}

// queueCreates adds the statements of creates: three or four for the set. As with
// effect.queue, what a create restores comes before its insert.
func queueCreates(b *sqldb.Batch, engine sqldb.Engine, run []*effect) {
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
		b.Exec(createdSetPostgres, ids, uids, kinds, namespaces, names, bodies)
		references.queue(b)
		return
	}
	heads, places := make([][6]any, len(run)), make([][2]int, len(run))
	var bodies []byte
	for i, f := range run {
		heads[i] = [6]any{f.uid, f.key.Kind, f.key.Namespace, f.key.Name, f.finalizing, f.ownColumn()}
		places[i] = [2]int{len(bodies) + 1, len(f.stored)}
		bodies = append(bodies, f.stored...)
	}
	b.Exec(createSetSQLite, sqldb.JSON(heads), run[0].revision)
	b.Exec(createdSetSQLite, sqldb.JSON(places), run[0].revision, bodies)
	if len(references.dependents) > 0 {
		b.Exec(ownSetSQLite, references.json())
	}
}

// queueRestored is Restoration.queue for many.
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
