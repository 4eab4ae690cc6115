package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/cascades"
)

// Restoration is the part of a create that restores an object from the archive.
// The zero value: an ordinary create.
type Restoration struct {
	// Row is the row of the archive. It must still exist, and its cascade must not be
	// leaving; the create records the new object's uid in it, and holds the cascade.
	Row int64
	// Dropped are the owner references that the restored object lacks. The
	// transaction of the create records them, instead of those that were recorded for
	// the object before.
	Dropped []DroppedReference
	// Had: references were recorded for the object before.
	Had bool
	// LookedAt is the revision at which the owners in Dropped were looked up. If
	// one of them was restored since, the create fails with ErrOwnerIsBack.
	LookedAt int64
	// Relinks: the transaction also restores the dropped references to this object.
	// Without it, such references fail the create with ErrAwaited.
	Relinks bool
}

// DroppedReference is a reference to an owner that is gone.
type DroppedReference struct {
	Owner types.UID
	// Reference is the OwnerReference as it was, in JSON; Known are the uids of all
	// owners that the object had then, in their order, in JSON.
	Reference, Known string
}

// Why a restore must be retried: look the owners up again, or set Relinks.
var (
	ErrOwnerIsBack = errors.New("an owner was restored meanwhile")
	ErrAwaited     = errors.New("references wait for this object")
)

// queue adds the statements about dropped references.
func (r *Restoration) queue(b *sqldb.Batch, f *effect) {
	if r.Had {
		b.Exec(deleteDropped, f.uid)
	}
	for _, d := range r.Dropped {
		b.Query(func(row sqldb.Row) error {
			f.ownerIsBack = true
			return row.Scan(new(int64))
		}, restoredSince, string(d.Owner), r.LookedAt)
		b.Exec(insertDropped, string(d.Owner), f.uid, d.Reference, d.Known)
	}
}

// own is the id of the cascade that a deletion of the object begins; empty means its uid.
func (f *effect) own() string {
	switch {
	case f.before != nil:
		return f.before.own
	case f.restores.Row != 0:
		return cascades.IDOf(f.uid, f.restores.Row)
	default:
		return ""
	}
}

// ownColumn is own as a column: a string, or nil.
func (f *effect) ownColumn() any {
	if own := f.own(); own != "" {
		return own
	}
	return nil
}

// refused returns the reason why a restored object must not be committed.
func (f *effect) refused() error {
	switch {
	case f.restores.Row == 0:
		return nil
	case !f.restored:
		return object.Errorf(object.Expired, "%s has expired from the archive", f.key)
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

// restoredGap is how far the revisions of a restored database jump. The server that
// the backup was taken from has issued revisions after it, which clients still hold:
// fewer than this, or they could meet the same number with another content. At 30,000
// writes a second the gap lasts for a year.
const restoredGap = 1_000_000_000_000

// Restored prepares a database that was copied earlier, before a server opens it. The revision jumps by
// restoredGap, and everything before counts as compacted, so a list or watch from any revision that was issued
// before gets Expired, and no revision is issued twice. It returns the new revision. The server moves what is in
// the log into the history.
func Restored(ctx context.Context, tx *sql.Tx) (int64, error) {
	var current, compacted int64
	if err := tx.QueryRowContext(ctx, readRevision).Scan(&current, &compacted); err != nil {
		return 0, fmt.Errorf("raise the revision: %w", err)
	}
	next := current + restoredGap
	if _, err := tx.ExecContext(ctx, raiseRevision, next); err != nil {
		return 0, fmt.Errorf("raise the revision: %w", err)
	}
	return next, nil
}

const raiseRevision = `UPDATE revision SET current = $1, compacted = $1`
