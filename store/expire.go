package store

import (
	"context"
	"time"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/due"
)

// Expiry says when objects expire. The store asks it in each write transaction, so that the row of the queue is
// written with the object.
type Expiry interface {
	// Governs reports whether objects of a kind say when other objects expire.
	Governs(kind string) bool
	// At returns the function by the objects that govern as they are now. The last write of one has the revision.
	At(ctx context.Context, r *Reader, revision int64) (due.Func, error)
}

// lifetimes says when objects expire.
type lifetimes struct {
	events time.Duration // 0 means until they are deleted
	expiry Expiry        // may be nil
	due    due.Func      // of the transaction
}

// beginExpiry sets what the transaction, which holds the lock, knows of expiry.
func (t *Tx) beginExpiry(ctx context.Context) (err error) {
	if expiry := t.writes.lives.expiry; expiry != nil {
		t.writes.lives.due, err = expiry.At(ctx, &t.Reader, t.policies)
	}
	return err
}

// queue adds the statements about when an object expires. keepRows leaves those of removed Events.
func (l lifetimes) queue(b *sqldb.Batch, f *effect, keepRows bool) {
	w := due.Write{Key: f.key, ID: f.id, UID: f.uid, Restores: f.restores.Row != 0, At: f.at}
	if f.before != nil {
		w.Before = f.before.body
	}
	if f.Type != Removed {
		w.Body = f.body
	}
	if f.key.Kind == object.Events {
		if w.Body != nil || !keepRows {
			due.QueueEvent(b, w, l.events)
		}
		return
	}
	if l.expiry != nil && l.expiry.Governs(f.key.Kind) {
		due.QueuePolicy(b, f.revision, f.uid, f.at)
	}
	if l.due != nil && w.Body != nil {
		due.Queue(b, w, l.due)
	}
}
