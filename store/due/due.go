// Package due writes when objects expire: into the queue of their reviews, in the transaction that writes the object. Package
// deletion/expiry reviews them. The package does not know why an object expires: a function that it gets says when.
//
// Events have a table of their own and no review: the store removes them.
package due

import (
	"context"
	"time"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
)

// Func returns when an object expires; the zero time: it does not. With doubt only a review can say whether it does, and
// each write after the time may change that.
type Func func(key object.Key, body []byte) (at time.Time, doubt bool)

// Write is the write of an object.
type Write struct {
	Key      object.Key
	ID       int64
	UID      string
	Revision int64
	Body     []byte // nil: the object was removed
	Before   []byte // nil: there was none
	Restores bool
	At       int64 // Unix milliseconds
}

// Lifetimes say when objects expire, in one transaction.
type Lifetimes struct {
	Events  time.Duration                                // 0 means until they are deleted
	Changes func(kind string, before, after []byte) bool // reports whether a write changes Due; may be nil
	Due     Func                                         // may be nil
}

const (
	setExpiry = `
INSERT INTO object_expiries (object, expires_at) VALUES ($1, $2)
ON CONFLICT (object) DO UPDATE SET expires_at = excluded.expires_at`
	// DeleteEvent deletes the row of an Event.
	DeleteEvent = `DELETE FROM object_expiries WHERE object = $1`

	// enqueueExpiry is by the rules of package review, but the time is always the last one.
	enqueueExpiry = `
INSERT INTO expiry_reviews (uid, review_after, review_count, event, created_at) VALUES ($1, $2, 0, 'expiry', $3)
ON CONFLICT (uid) DO UPDATE SET review_after = excluded.review_after, claim_token = NULL, claim_until = NULL`
	// enqueueRestored notes when an object was restored whose time was over. It may replace the row of its former life.
	enqueueRestored = `
INSERT INTO expiry_reviews (uid, review_after, review_count, event, created_at) VALUES ($1, $2, 0, 'restored', $3)
ON CONFLICT (uid) DO UPDATE SET review_after = excluded.review_after, review_count = 0, event = excluded.event,
    created_at = excluded.created_at, last_error = NULL, claim_token = NULL, claim_until = NULL`

	setPolicies   = `UPDATE revision SET policies = $1`
	enqueuePolicy = `
INSERT INTO expiry_policy_reviews (uid, review_after, review_count, event, created_at) VALUES ($1, 0, 0, 'policy', $2)
ON CONFLICT (uid) DO UPDATE SET review_after = 0, claim_token = NULL, claim_until = NULL`
)

// Events have a TTL: every create and every update sets the expiry time again, as
// kube-apiserver's lease does. The time is a row of object_expiries, written with
// the Event, so it survives a restart. The compactor's loop removes Events that
// are due, in small steps. A step holds the lock on the revision, so only one
// replica removes an Event, and an update before the step has moved its time.
//
// Finalizers and grace periods do not hold an Event that is due: Kubernetes'
// storage ignores them as well.

const (
	// AnyEvent and ReadEvents find those whose time is over: object_expiries_expires_at_idx, then primary keys.
	AnyEvent   = `SELECT 1 FROM object_expiries WHERE expires_at <= $1 LIMIT 1`
	ReadEvents = `
SELECT e.object, coalesce(o.uid, ''), coalesce(o.kind, ''), coalesce(o.namespace, ''), coalesce(o.name, ''), coalesce(o.revision, 0),
    coalesce(o.deletion_time, 0), c.body
FROM (SELECT object, expires_at FROM object_expiries WHERE expires_at <= $1 ORDER BY expires_at, object LIMIT $2) e
LEFT JOIN objects o ON o.id = e.object LEFT JOIN changes c ON c.revision = o.revision
ORDER BY e.expires_at, e.object`
)

const (
	// restoredLook is when a restored object is looked at, only to see whether it is still there.
	restoredLook = 30 * 24 * time.Hour
	// clocksDiffer bounds how much the clocks of replicas differ: the lease of the queue.
	clocksDiffer = time.Minute
)

// Queue adds the statements about when an object expires. keepRows leaves those of removed Events.
func (l *Lifetimes) Queue(b *sqldb.Batch, w Write, keepRows bool) {
	switch {
	case w.Key.Kind != object.Events:
	case w.Body != nil && l.Events > 0:
		b.Exec(setExpiry, w.ID, w.At+l.Events.Milliseconds())
		return
	case w.Body == nil && !keepRows:
		b.Exec(DeleteEvent, w.ID)
		return
	default:
		return
	}
	if l.Changes != nil && l.Changes(w.Key.Kind, w.Before, w.Body) {
		b.Exec(setPolicies, w.Revision)
		b.Exec(enqueuePolicy, w.UID, w.At)
	}
	if l.Due != nil && w.Body != nil {
		enqueue(b, w, l.Due)
	}
}

// enqueue adds the statement that enqueues an object for the review at which it expires, unless a row is there for this
// time or an earlier one. An object that was restored after its time stays: otherwise it could not come back. The
// review of an object that expires later, or has left, does nothing. docs/spec/expiry.md has the argument.
func enqueue(b *sqldb.Batch, w Write, due Func) {
	when, doubt := due(w.Key, w.Body)
	at := when.UnixMilli()
	switch {
	case when.IsZero():
		return
	case w.Restores && at <= w.At:
		b.Exec(enqueueRestored, w.UID, w.At+restoredLook.Milliseconds(), w.At)
		return
	case w.Before != nil:
		was, _ := due(w.Key, w.Before)
		ahead := was.UnixMilli() > w.At+clocksDiffer.Milliseconds()
		if !was.IsZero() && (at >= was.UnixMilli() && ahead || when.Equal(was) && !doubt) {
			return
		}
	}
	b.Exec(enqueueExpiry, w.UID, at, w.At)
}

// Revisions reads the current revision, that of the last write that changed a policy of expiry, and that to which the log is
// compacted.
func Revisions(ctx context.Context, s sqldb.Sender) (current, changed, compacted int64, err error) {
	_, err = sqldb.First(ctx, s, []any{&current, &changed, &compacted}, `SELECT current, policies, compacted FROM revision`)
	return current, changed, compacted, err
}
