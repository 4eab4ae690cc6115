package store

import (
	"context"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/seal"
	"github.com/exeunt/exeunt/sqldb"
)

// Tx is a write transaction for those who decide about many objects at once:
// the collector. It holds the lock on the revision, so what it has read stays
// true until it commits. It is for one goroutine and ends with the function
// that Transact called.
type Tx struct {
	tx       *sqldb.Tx
	Now      time.Time
	archive  archivist
	keys     *seal.Keys
	lives    lifetimes
	sealing  string // the key that seals
	unsealed error  // a body could not be sealed: the transaction must not commit
	revision int64
	archived int64 // bytes
	effects  []*effect
	waiting  []*effect // of one type, not queued yet: they may become a set
	queued   sqldb.Batch
	engine   sqldb.Engine

	cause causes
}

// Stored is an object as a transaction found it.
type Stored struct {
	object.Object
	ID       int64
	Deleting bool
	stored   int // bytes of the body in the database; 0: as many as Body has
}

// Transact runs fn in a transaction of its own, in turn with the batches of
// other writes, and commits it when fn returns nil. fn must be quick: nobody
// else writes meanwhile.
func (s *Store) Transact(ctx context.Context, fn func(*Tx) error) error {
	return s.writer.do(ctx, func() error {
		tx, err := s.db.Begin(ctx)
		if err != nil {
			return fmt.Errorf("transact: %w", err)
		}
		defer tx.Rollback() // does nothing after a commit
		t := &Tx{tx: tx, Now: s.now(), archive: s.archive, keys: s.opts.Keys, lives: lifetimes{s.opts.EventTTL}, engine: s.db.Engine()}
		var b sqldb.Batch
		var compacted int64
		lock(&b, s.db.Engine(), &t.revision, &compacted)
		if t.keys != nil {
			querySealingKey(&b, &t.sealing)
		}
		if err := tx.Send(ctx, &b); err != nil {
			return fmt.Errorf("transact: %w", err)
		}
		if err := fn(t); err != nil {
			return err
		}
		if err := t.Flush(ctx); err != nil {
			return err
		}
		return s.finish(ctx, t)
	})
}

// finish moves the revision, commits and tells the watchers.
func (s *Store) finish(ctx context.Context, t *Tx) error {
	if len(t.effects) > 0 {
		var b sqldb.Batch
		b.Exec(setRevision, t.revision, t.archived)
		if s.db.Engine() == sqldb.Postgres {
			b.Exec(notifyPostgres, strconv.FormatInt(t.revision, 10))
		}
		if err := t.tx.Send(ctx, &b); err != nil {
			return fmt.Errorf("transact: %w", err)
		}
	}
	if err := t.tx.Commit(ctx); err != nil {
		s.commitFailed(err)
		return fmt.Errorf("transact: %w", &unknownOutcome{err})
	}
	if len(t.effects) > 0 {
		s.publish(newEvents(t.effects))
	}
	return nil
}

// Send runs statements of the caller's own.
func (t *Tx) Send(ctx context.Context, b *sqldb.Batch) error { return t.tx.Send(ctx, b) }

// Remove removes an object when the transaction is flushed.
func (t *Tx) Remove(o *Stored) {
	t.add(&effect{Type: Removed, key: o.Key, uid: string(o.UID), body: o.Body, before: o.state()})
}

// Rewrite gives an object another body, whose metadata is m, when the
// transaction is flushed. It returns the object as it is then.
func (t *Tx) Rewrite(o *Stored, m *metav1.ObjectMeta, body []byte) (*Stored, error) {
	f := &effect{key: o.Key, uid: string(o.UID), before: o.state()}
	if err := f.rewrite(body, m); err != nil {
		return nil, fmt.Errorf("rewrite %s: %w", o.Key, err)
	}
	t.add(f)
	next := *o
	next.Body, next.Revision, next.Deleting, next.stored = body, f.revision, m.DeletionTimestamp != nil, len(f.stored)
	return &next, nil
}

// Create adds an object when the transaction is flushed. That its name is free
// and its namespace takes it is for the caller to see to.
func (t *Tx) Create(key object.Key, m *metav1.ObjectMeta, body []byte) {
	f := &effect{Type: Created, key: key, uid: string(m.UID), body: body}
	f.describe(m)
	f.owners = ownersOf(m.OwnerReferences)
	f.ownersChange = len(f.owners) > 0
	t.add(f)
}

// add gives an effect its revision. An object that was rewritten in this
// transaction already must be passed as Rewrite returned it.
func (t *Tx) add(f *effect) {
	t.revision++
	f.id, f.revision = t.revision, t.revision
	if f.before != nil {
		f.id = f.before.id
	}
	f.at = t.Now.UnixMilli()
	if err := f.seal(t.keys, t.sealing); err != nil {
		t.unsealed = err
	}
	t.cause.explain(f)
	t.effects = append(t.effects, f)
	if len(t.waiting) > 0 && t.waiting[0].Type != f.Type {
		t.queueWaiting()
	}
	t.waiting = append(t.waiting, f)
}

// queueWaiting adds the statements of the effects that wait. Their revisions
// follow each other, because an effect of another type ends the run.
func (t *Tx) queueWaiting() {
	run := t.waiting
	t.waiting = nil
	for _, f := range run {
		if f.Type != Removed { // a cascade leaves these rows until they are due
			t.lives.queue(&t.queued, f)
		}
	}
	switch {
	case len(run) == 0:
	case run[0].Type == Removed:
		t.queueRemovals(run)
	case run[0].Type == Updated:
		t.queueRewrites(run)
	default:
		t.queueEach(run)
	}
}

func (t *Tx) queueEach(run []*effect) {
	for _, f := range run {
		t.archived += f.queue(&t.queued, t.archive)
	}
}

// Flush sends what was removed and rewritten, in one round trip. The triggers
// have fired when it returns.
func (t *Tx) Flush(ctx context.Context) error {
	t.queueWaiting()
	if t.unsealed != nil {
		return t.unsealed
	}
	if t.queued.Len() == 0 {
		return nil
	}
	queued := t.queued
	t.queued = sqldb.Batch{}
	if err := t.tx.Send(ctx, &queued); err != nil {
		return fmt.Errorf("write objects: %w", err)
	}
	return nil
}

func (o *Stored) state() *state {
	stored := o.stored
	if stored == 0 {
		stored = len(o.Body)
	}
	return &state{id: o.ID, uid: string(o.UID), revision: o.Revision, deleting: o.Deleting, body: o.Body, stored: stored}
}
