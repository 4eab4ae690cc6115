package store

import (
	"slices"

	"github.com/exeunt/exeunt/sqldb"
)

// addRemovals adds the statements of removals: three or four for a set. On SQLite, which has no
// arrays, all removals of a set have the same cause.
func (q *statements) addRemovals(rest []*effect) {
	for len(rest) > 0 {
		n := 1
		for n < len(rest) && (q.engine == sqldb.Postgres || rest[n].sameCause(rest[0])) {
			n++
		}
		if n < minSet {
			q.addEach(rest[:n])
		} else {
			q.addRemovalSet(rest[:n])
		}
		rest = rest[n:]
	}
}

func (q *statements) addRemovalSet(run []*effect) {
	ids, first := q.ids(run), run[0].revision
	if q.archive.on {
		q.archiveSet(run)
	}
	if q.engine == sqldb.Postgres {
		q.queued.Exec(burySetPostgres, ids, first)
	} else {
		q.queued.Exec(burySetSQLite, ids, first)
		q.queued.Exec(disownSet[q.engine], ids) // faster than the trigger, which deletes row by row
	}
	q.queued.Exec(deleteSet[q.engine], ids)
}

// archiveSet archives the objects of a set. Those that are not worth it have the id 0 in the list,
// which no object has: the place in the list is the revision.
func (q *statements) archiveSet(run []*effect) {
	ids := make([]int64, len(run))
	actors, cascades, requesters, requests := make([]*string, len(run)), make([]*string, len(run)), make([]*string, len(run)), make([]*string, len(run))
	for i, f := range run {
		if worthArchiving(f.key) {
			ids[i] = f.id
			q.archived += q.archive.size(f)
		}
		c := f.causeOfRemoval()
		actors[i], cascades[i], requesters[i], requests[i] = nullable[string](c.actor), nullable[string](c.cascade), nullable[string](c.requester), nullable[string](c.request)
	}
	if !slices.ContainsFunc(ids, func(id int64) bool { return id != 0 }) {
		return
	}
	first := run[0]
	if q.engine == sqldb.Postgres {
		q.queued.Exec(archiveSetPostgres, ids, first.revision, first.at, actors, cascades, q.archive.secrets, requesters, requests)
		return
	}
	c := first.causeOfRemoval()
	q.queued.Exec(archiveSetSQLite, sqldb.List(q.engine, ids), first.revision, first.at, c.actor, c.cascade, q.archive.secrets, c.requester, c.request)
}
