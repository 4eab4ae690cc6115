package store

import (
	"context"
	"slices"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
)

// write queues the effects of a batch. If one restores an object it also sends them: their rows say whether the restore
// is refused.
func (t *Tx) write(ctx context.Context, effects []*effect) error {
	traces := tracesOf(effects)
	if traces != nil {
		t.writes.queued.MarkTraces(t.engine, traces)
	}
	t.writes.addAll(effects)
	if traces != nil {
		t.writes.queued.UnmarkTraces(t.engine)
	}
	t.effects, t.revision = effects, effects[len(effects)-1].revision
	if err := t.Flush(); err != nil || !slices.ContainsFunc(effects, func(f *effect) bool { return f.restores.Row != 0 }) {
		return err
	}
	if err := t.sendAll(ctx, &sqldb.Batch{}); err != nil {
		return err
	}
	for _, f := range effects {
		if err := f.refused(); err != nil {
			return err
		}
	}
	return nil
}

// tracesOf returns the traceparents of traced deletes by uid; nil if there are none.
func tracesOf(effects []*effect) (traces map[string]string) {
	for _, f := range effects {
		if f.trace == "" {
			continue
		}
		if traces == nil {
			traces = map[string]string{}
		}
		traces[f.uid] = f.trace
	}
	return traces
}

// queue adds the statements of one effect. It returns the bytes that they add
// to the archive.
func (f *effect) queue(b *sqldb.Batch, archive archivist, at int64) (archived int64) {
	k := f.key
	var previous, body any
	if f.before != nil {
		previous = f.before.revision
	}
	switch f.Type {
	case Created:
		body = f.stored
		f.restores.queue(b, f)
		b.Exec(insertObject, f.id, f.uid, k.Kind, k.Namespace, k.Name, f.revision, f.deletionTime, f.graceSeconds, f.finalizing, f.ownColumn())
	case Updated:
		body = f.stored
		if f.staysActive() {
			b.Exec(touchObject, f.id, f.revision, f.finalizing)
		} else {
			c := f.cause()
			b.Exec(updateObject, f.id, f.revision, f.deletionTime, f.graceSeconds, f.finalizing, c.actor, c.cascade, c.requester, c.request)
		}
		if f.ownersChange {
			b.Exec(deleteOwners, f.id)
		}
	case Removed:
		archived = archive.queue(b, f) // reads the head: before it is deleted
		b.Exec(deleteObject, f.id)
	}
	b.Exec(insertChange, f.revision, f.id, f.uid, k.Kind, k.Namespace, k.Name, int64(f.Type), previous, body, at, f.by())
	if f.ownersChange {
		for _, o := range f.owners {
			b.Exec(insertOwner, f.id, o.uid, o.blocking, o.controller, o.group, o.kind, o.name)
		}
	}
	return archived
}

// staysActive says that an update neither begins nor continues a deletion.
func (f *effect) staysActive() bool { return !f.before.deleting && f.deletionTime == nil }

func newEvents(effects []*effect) []*Event {
	all := make([]Event, len(effects))
	events := make([]*Event, len(effects))
	for i, f := range effects {
		e := &all[i]
		e.Type = f.Type
		e.Object = object.Object{Key: f.key, UID: f.objectUID(), Revision: f.revision, Body: f.body}
		if f.Type == Updated {
			e.Previous = f.before.body
		}
		events[i] = e
	}
	return events
}

// addRemovals adds the statements of removals: three or four for a set.
func (q *statements) addRemovals(rest []*effect) {
	for len(rest) > 0 {
		n := 0
		for n < len(rest) && (q.engine == sqldb.Postgres || inJSON(rest[n].actor, rest[n].cascade, rest[n].requester, rest[n].request, rest[n].author)) {
			n++
		}
		if n < minSet {
			n = max(n, 1)
			q.addEach(rest[:n])
		} else {
			q.addRemovalSet(rest[:n])
		}
		rest = rest[n:]
	}
}

// addRemovalSet adds the statements of a set. Objects that are not worth archiving have the id 0 in the list of the
// archive, which no object has: the place in the list is the revision.
func (q *statements) addRemovalSet(run []*effect) {
	first, same := run[0], true
	archived, rows := make([]int64, len(run)), make([][7]any, len(run))
	for i, f := range run {
		if q.archive.on && worthArchiving(f.key) {
			archived[i] = f.id
			q.archived += q.archive.size(f)
		}
		c := f.causeOfRemoval()
		rows[i] = [7]any{archived[i], c.actor, c.cascade, c.requester, c.request, f.by(), f.id}
		same = same && f.sameCause(first)
	}
	archive, bury, causes := archiveSetSQLite, burySetSQLite, rows[0][1:6]
	from, ids := sqldb.List(q.engine, archived), q.ids(run)
	switch {
	case q.engine == sqldb.Postgres:
		archive, bury, causes = archiveSetPostgres, burySetPostgres, make([]any, 5)
		for i := range causes {
			column := make([]*string, len(run))
			for at, row := range rows {
				column[at] = nullable[string](row[i+1])
			}
			causes[i] = column
		}
	case !same:
		archive, bury, from = archiveEachSQLite, buryEachSQLite, sqldb.JSON(rows)
		ids = from
	}
	if q.archive.on {
		q.queued.Exec(archive, from, first.revision, first.at, causes[0], causes[1], q.archive.secrets, causes[2], causes[3])
	}
	q.queued.Exec(bury, ids, first.revision, q.at, causes[4])
	if q.engine == sqldb.SQLite {
		q.queued.Exec(disownSet[q.engine], q.ids(run)) // faster than the trigger, which deletes row by row
	}
	q.queued.Exec(deleteSet[q.engine], q.ids(run))
}
