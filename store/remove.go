package store

import "github.com/exeunt/exeunt/sqldb"

// minSet is the smallest set of removals or rewrites: fewer are cheaper one by one.
const minSet = 4

// queueRemovals adds the statements of removals: three for each run of removals
// with the same cause, instead of three for each removal.
func (t *Tx) queueRemovals(rest []*effect) {
	for len(rest) > 0 {
		n := 1
		for n < len(rest) && rest[n].sameCause(rest[0]) {
			n++
		}
		if n < minSet {
			t.queueEach(rest[:n])
		} else {
			t.queueSet(rest[:n])
		}
		rest = rest[n:]
	}
}

func (t *Tx) queueSet(run []*effect) {
	archive, bury, remove := archiveSetSQLite, burySetSQLite, deleteSetSQLite
	if t.engine == sqldb.Postgres {
		archive, bury, remove = archiveSetPostgres, burySetPostgres, deleteSetPostgres
	}
	ids, first := t.ids(run), run[0]
	if t.archive.on {
		c := first.causeOfRemoval()
		t.queued.Exec(archive, ids, first.revision, first.at, c.actor, c.cascade, t.archive.secrets, c.requester, c.request)
		for _, f := range run {
			t.archived += t.archive.size(f)
		}
	}
	t.queued.Exec(bury, ids, first.revision)
	if t.engine == sqldb.SQLite {
		t.queued.Exec(disownSetSQLite, ids) // faster than the trigger, which deletes row by row
	}
	t.queued.Exec(remove, ids)
}

// ids is the list of ids as the engine's statements take it.
func (t *Tx) ids(run []*effect) any {
	ids := make([]int64, len(run))
	for i, f := range run {
		ids[i] = f.id
	}
	return sqldb.List(t.engine, ids)
}
