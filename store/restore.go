package store

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
)

// Restoration is the part of a create that restores an object from the archive.
// The zero value: an ordinary create.
type Restoration struct {
	// Row is the row of the archive. It must still exist; the create records the
	// new object's uid in it.
	Row int64
	// Dropped are the owner references that the restored object lacks. The
	// transaction of the create records them.
	Dropped []DroppedReference
	// LookedAt is the revision at which the owners in Dropped were looked up. If
	// one of them was restored since, the create fails with ErrOwnerIsBack.
	LookedAt int64
	// Relinks: the transaction also restores the dropped references to this object.
	// Without it, such references fail the create with ErrAwaited.
	Relinks bool
}

// DroppedReference is a reference to an owner that is gone.
type DroppedReference struct {
	// Owners are the uids that the owner had: a restore of any of them restores
	// the owner.
	Owners []types.UID
	// Reference is the OwnerReference as it was archived, in JSON; Known are the
	// uids of the owners that restores gave the object, in JSON.
	Reference, Known string
}

// Why a restore must be retried: look the owners up again, or set Relinks.
var (
	ErrOwnerIsBack = errors.New("an owner was restored meanwhile")
	ErrAwaited     = errors.New("references wait for this object")
)

// queue adds the statements that must run before the object's insert: its triggers
// read what it restores.
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

// refused returns the reason why a restored object must not be committed.
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

// Restore is Store.Create in this transaction, for an object from the archive. It
// flushes.
func (t *Tx) Restore(ctx context.Context, r CreateRequest) error {
	if err := checkNew(r); err != nil {
		return err
	}
	_, err := t.run(ctx, &operation{key: r.Key, needs: r.needs(), decide: r.decide, grows: true}, r.With, r.DryRun)
	return err
}
