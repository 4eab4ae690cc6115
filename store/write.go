package store

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/seal"
)

// sqlTx is the transaction of a batch in the database.
type sqlTx struct {
	tx     *sqldb.Tx
	engine sqldb.Engine
	keys   *seal.Keys
	writes statements
	limits Limiter     // nil: none
	last   sqldb.Batch // sent with the commit
}

func (s *Store) beginWrite(ctx context.Context) (transaction, error) {
	tx, err := s.db.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &sqlTx{tx: tx, engine: s.db.Engine(), keys: s.opts.Keys, writes: s.statements()}, nil
}

func (s *Store) statements() statements {
	return statements{engine: s.db.Engine(), archive: s.archive, lives: lifetimes{s.opts.EventTTL}}
}

// lock adds the statement that takes the lock on the revision.
func lock(b *sqldb.Batch, engine sqldb.Engine, current, compacted *int64) {
	lockWith(b, engine, current, compacted, new(int64))
}

// lockWith is lock for a transaction that quotas may limit.
func lockWith(b *sqldb.Batch, engine sqldb.Engine, current, compacted, quotas *int64) {
	statement := lockRevisionSQLite
	if engine == sqldb.Postgres {
		statement = lockRevisionPostgres
	}
	b.Query(func(row sqldb.Row) error { return row.Scan(current, compacted, quotas) }, statement)
}

// load is one round trip. On PostgreSQL each statement sees what was committed
// before the statement began, so the statements after the lock see every commit
// that the lock waited for.
func (t *sqlTx) load(ctx context.Context, v *view) error {
	var b sqldb.Batch
	lockWith(&b, t.engine, &v.revision, &v.compacted, &v.quotas)
	if v.queueLoads(&b, t.engine, t.keys) {
		seal.QueryKey(&b, &v.sealing)
	}
	if err := t.tx.Send(ctx, &b); err != nil {
		return err
	}
	if v.revision == 0 {
		return errors.New("the table revision has no row")
	}
	return nil
}

func (t *sqlTx) parents(ctx context.Context, v *view, uids []string) error {
	v.parents = make(map[string]bool, len(uids))
	var b sqldb.Batch
	for _, uid := range uids {
		b.Query(func(row sqldb.Row) error {
			v.parents[uid] = true
			return row.Scan(new(int64))
		}, hasDependents, uid)
	}
	return t.tx.Send(ctx, &b)
}

func (t *sqlTx) write(ctx context.Context, effects []*effect) error {
	b := &t.writes.queued
	traces := tracesOf(effects)
	if traces != nil {
		b.MarkTraces(t.engine, traces)
	}
	t.writes.addAll(effects)
	if traces != nil {
		b.UnmarkTraces(t.engine)
	}
	last := effects[len(effects)-1].revision
	b.Exec(setRevision, last, t.writes.archived)
	queueLimits(b, t.limits, last)
	if t.engine == sqldb.Postgres {
		b.Exec(notifyPostgres, strconv.FormatInt(last, 10))
	}
	if !slices.ContainsFunc(effects, func(f *effect) bool { return f.restores.Row != 0 }) {
		t.last = *b
		return nil
	}
	if err := t.tx.Send(ctx, b); err != nil { // its rows say whether a restore is refused
		return err
	}
	for _, f := range effects {
		if err := f.refused(); err != nil {
			return err
		}
	}
	return nil
}

// tracesOf returns the traceparents of traced deletes by uid; nil: there are none.
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

func (t *sqlTx) commit(ctx context.Context) error { return t.tx.SendAndCommit(ctx, &t.last) }
func (t *sqlTx) rollback()                        { t.tx.Rollback() }
func (t *sqlTx) limited(l Limiter)                { t.limits = l }

func (t *sqlTx) send(ctx context.Context, b *sqldb.Batch) error { return t.tx.Send(ctx, b) }

// queue adds the statements of one effect. It returns the bytes that they add
// to the archive.
func (f *effect) queue(b *sqldb.Batch, archive archivist) (archived int64) {
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
	b.Exec(insertChange, f.revision, f.id, f.uid, k.Kind, k.Namespace, k.Name, int64(f.Type), previous, body)
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
