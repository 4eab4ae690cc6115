package store

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
)

// Restoration is what a create says that brings an object back from the archive.
// The zero value is a create like any other.
type Restoration struct {
	// Row is the row of the archive. It must still be there, and will say what
	// became of it.
	Row int64
	// Dropped are the owner references that the object comes back without. They
	// are remembered in the transaction of the create.
	Dropped []DroppedReference
	// LookedAt is the revision at which the owners in Dropped were looked for. One
	// that was restored since ends the create with ErrOwnerIsBack.
	LookedAt int64
	// Relinks: the transaction gives the references back that wait for this object.
	// Otherwise such references end the create with ErrAwaited.
	Relinks bool
}

// DroppedReference is a reference to an owner that is gone.
type DroppedReference struct {
	// Owners are the uids that the owner had: a restore of any of them brings it
	// back.
	Owners []types.UID
	// Reference is the OwnerReference as it was archived, in JSON; Known are the
	// uids of the owners that restores gave the object, in JSON.
	Reference, Known string
}

// Why a create of a restored object must be repeated in another way.
var (
	ErrOwnerIsBack = errors.New("an owner was restored meanwhile")
	ErrAwaited     = errors.New("references wait for this object")
)

// queue adds the statements that come before the object's own: triggers of that
// want to know what it restores.
func (r *Restoration) queue(b *sqldb.Batch, f *effect) {
	if r.Row == 0 {
		return
	}
	b.Query(func(row sqldb.Row) error {
		f.restored = true
		return row.Scan(&f.awaited)
	}, markRestored, r.Row, f.uid)
	for _, d := range r.Dropped {
		for _, uid := range d.Owners {
			b.Query(func(row sqldb.Row) error {
				f.ownerIsBack = true
				return row.Scan(new(int64))
			}, restoredSince, string(uid), r.LookedAt)
			b.Exec(insertDropped, string(uid), f.uid, d.Reference, d.Known)
		}
	}
}

// refused says why a restored object must not be committed.
func (f *effect) refused() error {
	switch {
	case f.restores.Row == 0:
		return nil
	case !f.restored:
		return object.Errorf(object.Expired, "%s left the archive meanwhile", f.key)
	case f.ownerIsBack:
		return fmt.Errorf("restore %s: %w", f.key, ErrOwnerIsBack)
	case f.awaited && !f.restores.Relinks:
		return fmt.Errorf("restore %s: %w", f.key, ErrAwaited)
	}
	return nil
}

// Restore is Store.Create in this transaction, for an object that comes from the
// archive. It flushes.
func (t *Tx) Restore(ctx context.Context, r CreateRequest) error {
	if err := checkNew(r); err != nil {
		return err
	}
	v := newView([]*operation{{key: r.Key, needs: r.needs()}}, t.Now)
	var b sqldb.Batch
	v.queueLoads(&b, t.keys)
	if err := t.tx.Send(ctx, &b); err != nil {
		return fmt.Errorf("load objects: %w", err)
	}
	f, err := r.decide(v)
	if err != nil || f.Type == 0 {
		return err
	}
	t.add(&f)
	if err := t.Flush(ctx); err != nil {
		return err
	}
	return f.refused()
}
