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
	Begin(ctx context.Context, at Locked) (Limiter, error)
}

// Locked is the state that a transaction found when it got the lock.
type Locked struct {
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

// beginLimits sets the limits of the transaction.
func (t *Tx) beginLimits(ctx context.Context, l Limits) (err error) {
	if l != nil {
		t.limits, err = l.Begin(ctx, Locked{Reader: &t.Reader, Revision: t.revision, Compacted: t.compacted, Quotas: t.quotas, Now: t.Now})
	}
	return err
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
