package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/due"
	"github.com/exeunt/exeunt/store/seal"
)

// Tx is a write transaction. It holds the lock on the revision, so what it has read stays true
// until it commits. A batch of the writer is one; Transact runs one that decides about many objects at once, for the
// collector. It is for one goroutine and ends with the function that Transact calls.
type Tx struct {
	Reader
	tx       databaseTx
	Now      time.Time
	sealing  string // name of the sealing key
	unsealed error  // a body could not be sealed: the transaction must not commit
	revision int64
	// compacted is the revision that the log is compacted to, and quotas that of the last write that changed what a
	// quota limits.
	compacted, quotas int64
	changedAt, moved  int64 // revision.changed_at and revision.moved
	expiry            Expiry
	policies          int64 // revision of the last write that changed a policy of expiry
	author            string
	effects           []*effect
	waiting           []*effect // all of one type; their statements are added at once, as a set if possible
	writes            statements
	flushed           sqldb.Batch // run before the next statements that are sent

	cause  causes
	limits Limiter // nil if there is none
}

// databaseTx is a transaction of the database. Tests replace it.
type databaseTx interface {
	sqldb.Sender
	SendAndCommit(ctx context.Context, b *sqldb.Batch) error
	Rollback()
}

// begin begins a transaction. The first statements that it sends come behind that which takes the lock.
func (s *Store) begin(ctx context.Context) (*Tx, error) {
	tx, err := s.beginTx(ctx)
	if err != nil {
		return nil, err
	}
	t := &Tx{tx: tx, Now: s.now(), author: authorOf(ctx)}
	t.writes = statements{engine: s.db.Engine(), archive: s.archive, lives: due.Lifetimes{Events: s.opts.EventTTL}}
	if t.expiry = s.opts.Expiry; t.expiry != nil {
		t.writes.lives.Changes = t.expiry.Changes
	}
	t.Reader = Reader{send: t.sendAll, engine: s.db.Engine(), keys: s.opts.Keys}
	t.flushed.Query(func(row sqldb.Row) error {
		return row.Scan(&t.revision, &t.compacted, &t.quotas, &t.changedAt, &t.moved, &t.policies)
	}, t.pick(lockRevisionSQLite, lockRevisionPostgres))
	return t, nil
}

// Transact runs fn in a transaction of its own, between two batches of other
// writes, and commits it when fn returns nil. fn must be quick: all other writes
// wait for it.
func (s *Store) Transact(ctx context.Context, fn func(*Tx) error) error {
	return s.writer.do(ctx, func() error {
		t, err := s.begin(ctx)
		if err != nil {
			return fmt.Errorf("transact: %w", err)
		}
		defer t.tx.Rollback() // does nothing after a commit
		t.writes.keepExpiries = true
		if t.keys != nil {
			seal.QueryKey(&t.flushed, &t.sealing)
		}
		if err = t.sendAll(ctx, &sqldb.Batch{}); err == nil {
			err = errors.Join(t.beginLimits(ctx, s.limits), t.beginExpiry(ctx))
		}
		if err != nil {
			return fmt.Errorf("transact: %w", err)
		}
		if err := fn(t); err != nil {
			return err
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if err := s.finish(ctx, t); err != nil {
			return fmt.Errorf("transact: %w", err)
		}
		return nil
	})
}

// finish sets the revision, commits, and publishes the events. After a sqldb.RefusedError nothing was committed.
func (s *Store) finish(ctx context.Context, t *Tx) error {
	if len(t.effects) > 0 {
		t.flushed.Exec(setRevision, t.revision, t.writes.archived, t.writes.at)
		queueLimits(&t.flushed, t.limits, t.revision)
		if t.engine == sqldb.Postgres {
			t.flushed.Exec(notifyPostgres, strconv.FormatInt(t.revision, 10))
		}
	}
	if err := t.tx.SendAndCommit(ctx, &t.flushed); err != nil {
		if refused := new(sqldb.RefusedError); errors.As(err, &refused) {
			return err
		}
		s.commitFailed(err)
		return &unknownOutcome{err}
	}
	if len(t.effects) > 0 {
		s.publish(newEvents(t.effects))
	}
	return nil
}

// Remove removes an object when the transaction is flushed.
func (t *Tx) Remove(o *Stored) {
	t.add(&effect{Type: Removed, key: o.Key, uid: string(o.UID), body: o.Body, before: o.state()})
}

// Rewrite replaces the body of an object when the transaction is flushed; m is
// the new body's metadata. It returns the object's new state.
func (t *Tx) Rewrite(o *Stored, m *metav1.ObjectMeta, body []byte) (*Stored, error) {
	f := &effect{key: o.Key, uid: string(o.UID), before: o.state()}
	if err := f.rewrite(body, m); err != nil {
		return nil, fmt.Errorf("rewrite %s: %w", o.Key, err)
	}
	t.add(f)
	next := *o
	next.Body, next.Revision, next.stored = body, f.revision, len(f.stored)
	next.Deleting, next.Deletion, next.Finalizing = m.DeletionTimestamp != nil, 0, f.finalizing
	if next.Deleting {
		next.Deletion = m.DeletionTimestamp.Unix()
	}
	return &next, nil
}

// Create adds an object when the transaction is flushed. The caller has checked
// that the name is free and that the namespace exists and is not terminating.
func (t *Tx) Create(key object.Key, m *metav1.ObjectMeta, body []byte) {
	f := &effect{Type: Created, key: key, uid: string(m.UID), body: body}
	f.describe(m)
	f.owners = ownersOf(m.OwnerReferences)
	f.ownersChange = len(f.owners) > 0
	t.add(f)
}

// add gives an effect its revision. For an object that this transaction has
// rewritten before, the effect must start from what Rewrite returned.
func (t *Tx) add(f *effect) {
	t.revision++
	f.id, f.revision = t.revision, t.revision
	if f.before != nil {
		f.id = f.before.id
	}
	f.at, f.author = t.Now.UnixMilli(), t.author
	if err := f.seal(t.keys, t.sealing); err != nil {
		t.unsealed = err
	}
	t.cause.explain(f)
	if t.limits != nil {
		t.limits.Accept(f.change())
	}
	t.effects = append(t.effects, f)
	if len(t.waiting) > 0 && t.waiting[0].Type != f.Type {
		t.queueWaiting()
	}
	t.waiting = append(t.waiting, f)
}

// queueWaiting adds the statements of the waiting effects. Their revisions are
// consecutive, because an effect of another type ends the run.
func (t *Tx) queueWaiting() {
	t.writes.add(t.waiting)
	t.waiting = nil
}

// Flush makes the effects so far visible to the reads that follow in this transaction, and
// runs the triggers before them. The statements are sent together with the next ones, so a
// review costs one round trip less for each of its writes.
func (t *Tx) Flush() error {
	t.queueWaiting()
	if t.unsealed != nil {
		return t.unsealed
	}
	if t.flushed.Len() == 0 {
		t.flushed = t.writes.queued
	} else {
		t.flushed.Add(&t.writes.queued)
	}
	t.writes.queued = sqldb.Batch{}
	return nil
}

// Defer runs a statement on a table of another package after the effects that were flushed and
// before the next statements that are sent.
func (t *Tx) Defer(statement string, args ...any) { t.flushed.Exec(statement, args...) }

// sendAll sends what was flushed, and then the batch, in one round trip.
func (t *Tx) sendAll(ctx context.Context, b *sqldb.Batch) error {
	locks := t.revision == 0
	if err := t.tx.Send(ctx, t.withFlushed(b)); err != nil {
		return err
	}
	if locks && t.revision == 0 {
		return errors.New("the table revision has no row")
	}
	if locks { // the clocks of replicas differ, and the times of revisions must not fall
		t.writes.at = max(t.Now.UnixMilli(), t.changedAt)
	}
	return nil
}

// withFlushed returns the batch behind what was flushed.
func (t *Tx) withFlushed(b *sqldb.Batch) *sqldb.Batch {
	if t.flushed.Len() == 0 {
		return b
	}
	all := t.flushed
	t.flushed = sqldb.Batch{}
	all.Add(b)
	return &all
}

func (o *Stored) state() *state {
	stored := o.stored
	stored = cmp.Or(stored, len(o.Body))
	return &state{id: o.ID, uid: string(o.UID), revision: o.Revision, deleting: o.Deleting, own: o.own, body: o.Body, stored: stored}
}
