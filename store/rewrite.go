package store

import "github.com/exeunt/exeunt/sqldb"

// maxSetBytes bounds the bodies of one statement on SQLite, which copies them.
const maxSetBytes = 4 << 20

// addRewrites adds the statements of rewrites: three or four for a set, instead
// of as many for each rewrite. An object that is rewritten twice is in two sets,
// since a set changes each of its rows once.
func (q *statements) addRewrites(rest []*effect) {
	for len(rest) > 0 {
		n, bytes, seen := 0, 0, make(map[int64]bool, len(rest))
		for n < len(rest) && !seen[rest[n].id] && (n == 0 || rest[n].joins(q.engine, rest[0], bytes)) {
			seen[rest[n].id] = true
			bytes += len(rest[n].stored)
			n++
		}
		switch {
		case n < minSet:
			q.addEach(rest[:n])
		case q.engine == sqldb.Postgres:
			q.addRewriteArrays(rest[:n])
		default:
			q.addRewriteRun(rest[:n])
		}
		rest = rest[n:]
	}
}

// joins says whether a rewrite fits into the set that begins with first. SQLite has no arrays,
// so a set writes the same values into all its heads, except for the revisions, which are
// consecutive. On PostgreSQL it touches all heads or none.
func (f *effect) joins(engine sqldb.Engine, first *effect, bytes int) bool {
	if engine == sqldb.Postgres {
		return f.staysActive() == first.staysActive()
	}
	same := f.deletionTime == first.deletionTime && f.graceSeconds == first.graceSeconds && f.finalizing == first.finalizing &&
		f.before.deleting == first.before.deleting && f.sameCause(first)
	return same && bytes+len(f.stored) <= maxSetBytes
}

// addRewriteRun is for SQLite. It passes the bodies as one value, and for each
// object its id and the position of its body in that value.
func (q *statements) addRewriteRun(run []*effect) {
	first := run[0]
	var bodies []byte
	places := make([][3]int64, len(run))
	var disowned []*effect
	for i, f := range run {
		places[i] = [3]int64{f.id, int64(len(bodies) + 1), int64(len(f.stored))}
		bodies = append(bodies, f.stored...)
		if f.ownersChange {
			disowned = append(disowned, f)
		}
	}
	q.queued.Exec(logSetSQLite, sqldb.JSON(places), first.revision, bodies)
	if first.staysActive() {
		q.queued.Exec(touchSetSQLite, q.ids(run), first.revision, first.finalizing)
	} else {
		c := first.cause()
		q.queued.Exec(rewriteSetSQLite, q.ids(run), first.revision, first.deletionTime, first.graceSeconds, first.finalizing, c.actor, c.cascade, c.requester, c.request)
	}
	if len(disowned) > 0 {
		q.queued.Exec(disownSet[q.engine], q.ids(disowned))
	}
	for _, f := range disowned {
		for _, o := range f.owners {
			q.queued.Exec(insertOwner, f.id, o.uid, o.blocking, o.controller, o.group, o.kind, o.name)
		}
	}
}

// addRewriteArrays is for PostgreSQL.
func (q *statements) addRewriteArrays(run []*effect) {
	n := len(run)
	ids, revisions, previous, finalizing := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	deletions, graces := make([]*int64, n), make([]*int64, n)
	actors, cascades, requesters, requests := make([]*string, n), make([]*string, n), make([]*string, n), make([]*string, n)
	bodies := make([][]byte, n)
	var disowned []int64
	var references referenceRows
	for i, f := range run {
		ids[i], revisions[i], previous[i], finalizing[i], bodies[i] = f.id, f.revision, f.before.revision, f.finalizing, f.stored
		deletions[i], graces[i] = nullable[int64](f.deletionTime), nullable[int64](f.graceSeconds)
		c := f.cause()
		actors[i], cascades[i], requesters[i], requests[i] = nullable[string](c.actor), nullable[string](c.cascade), nullable[string](c.requester), nullable[string](c.request)
		if f.ownersChange {
			disowned = append(disowned, f.id)
			references.add(f)
		}
	}
	if run[0].staysActive() {
		q.queued.Exec(touchSetPostgres, ids, revisions, finalizing)
	} else {
		q.queued.Exec(rewriteSetPostgres, ids, revisions, deletions, graces, finalizing, actors, cascades, requesters, requests)
	}
	q.queued.Exec(logSetPostgres, ids, revisions, previous, bodies)
	if len(disowned) > 0 {
		q.queued.Exec(disownSet[q.engine], disowned)
	}
	references.queue(&q.queued)
}

// referenceRows are rows of owners, column by column.
type referenceRows struct {
	dependents                   []int64
	owners, groups, kinds, names []string
	blocking, controller         []bool
}

func (r *referenceRows) add(f *effect) {
	for _, o := range f.owners {
		r.dependents = append(r.dependents, f.id)
		r.owners = append(r.owners, o.uid)
		r.groups, r.kinds, r.names = append(r.groups, o.group), append(r.kinds, o.kind), append(r.names, o.name)
		r.blocking = append(r.blocking, o.blocking)
		r.controller = append(r.controller, o.controller)
	}
}

// nullable converts a value that may be nil to an element of an array.
func nullable[T any](value any) *T {
	if v, ok := value.(T); ok {
		return &v
	}
	return nil
}
