package store

import (
	"context"
	"time"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
)

// Limits decides whether writes fit into the quotas of their namespace. The store
// calls it inside each write transaction, which holds the lock on the revision: no
// other write, of any replica, comes between the decision and the commit.
type Limits interface {
	// Begin returns the limits of a transaction.
	Begin(ctx context.Context, at Moment) (Limiter, error)
}

// Moment is the state that a transaction found when it got the lock.
type Moment struct {
	*Reader
	Revision, Compacted int64
	Quotas              int64 // revision of the last write for which a Limiter's Changed was true
	Now                 time.Time
}

// Limiter is the Limits of one transaction. It is for one goroutine.
type Limiter interface {
	// Prepare reads what Check needs for a namespace. All changes that were accepted
	// before must be flushed.
	Prepare(ctx context.Context, namespace string) error
	// Check returns an *object.Error if a change does not fit.
	Check(c Change) error
	// Accept notes that the transaction makes a change.
	Accept(c Change)
	// Changed says whether an accepted change changes what a quota limits.
	Changed() bool
	// Queue adds the statements that belong to the accepted changes.
	Queue(b *sqldb.Batch)
}

// Change is a write to one object.
type Change struct {
	Type          EventType
	Key           object.Key
	UID           string
	Before, After []byte // bodies; nil: the object does not exist
}

// SetLimits makes the store ask for every write. It must be called before Run.
func (s *Store) SetLimits(l Limits) { s.limits = l }

func (f *effect) change() Change {
	c := Change{Type: f.Type, Key: f.key, UID: f.uid}
	if f.before != nil {
		c.Before = f.before.body
	}
	if f.Type != Removed {
		c.After = f.body
	}
	return c
}

// fits asks the limits about a write.
func (v *view) fits(f *effect) error {
	if v.limits == nil || f.key.Namespace == "" {
		return nil
	}
	return v.limits.Check(f.change())
}

func (s *Store) beginLimits(ctx context.Context, r *Reader, revision, compacted, quotas int64, now time.Time) (Limiter, error) {
	if s.limits == nil {
		return nil, nil
	}
	return s.limits.Begin(ctx, Moment{Reader: r, Revision: revision, Compacted: compacted, Quotas: quotas, Now: now})
}

// limit is environment.limit.
func (s *Store) limit(ctx context.Context, tx transaction, v *view, ops []*operation) (err error) {
	if s.limits == nil {
		return nil
	}
	r := &Reader{send: tx.send, engine: s.db.Engine(), keys: s.opts.Keys}
	if v.limits, err = s.beginLimits(ctx, r, v.revision, v.compacted, v.quotas, v.now); err != nil {
		return err
	}
	tx.limited(v.limits)
	for _, op := range ops {
		if !op.grows || op.key.Namespace == "" {
			continue
		}
		if err := v.limits.Prepare(ctx, op.key.Namespace); err != nil {
			return err
		}
	}
	return nil
}

// limit prepares the limits of an operation in this transaction.
func (t *Tx) limit(ctx context.Context, v *view, op *operation) error {
	v.limits = t.limits
	if t.limits == nil || !op.grows || op.key.Namespace == "" {
		return nil
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return t.limits.Prepare(ctx, op.key.Namespace)
}

// Limiter returns the limits of this transaction; nil: the store has none.
func (t *Tx) Limiter() Limiter { return t.limits }

// queueLimits adds the statements of the limits to those of a transaction that ends at
// a revision.
func queueLimits(b *sqldb.Batch, l Limiter, revision int64) {
	if l == nil {
		return
	}
	l.Queue(b)
	if l.Changed() {
		b.Exec(setQuotas, revision)
	}
}
