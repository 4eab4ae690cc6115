package store

import (
	"context"

	"github.com/exeunt/exeunt/store/due"
)

// Expiry says when objects expire. The store asks it in each write transaction, so that the row of the queue is
// written with the object.
type Expiry interface {
	// Changes reports whether the write of an object changes when others expire. A body is nil if there is none.
	Changes(kind string, before, after []byte) bool
	// At returns the rules as they are at a revision. The last write for which Changes was true has the revision changed.
	At(ctx context.Context, r *Reader, revision, changed int64) (due.Rules, error)
}

// beginExpiry sets what the transaction, which holds the lock, knows of expiry.
func (t *Tx) beginExpiry(ctx context.Context) (err error) {
	if t.expiry != nil {
		t.writes.lives.Due, err = t.expiry.At(ctx, &t.Reader, t.revision, t.policies)
	}
	return err
}

// life is the write for package due.
func (f *effect) life() due.Write {
	c := f.change()
	return due.Write{Key: f.key, ID: f.id, UID: f.uid, Revision: f.revision, Before: c.Before, Body: c.After, Restores: f.restores.Row != 0, At: f.at}
}
