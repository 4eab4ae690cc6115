// Package due writes when objects expire: into the queue of their reviews, in the transaction that writes the object. Package
// deletion/expiry reviews them. The package does not know why an object expires: a function that it gets says when.
//
// Events have a table of their own and no review: the store removes them.
package due

import (
	"context"
	"slices"
	"time"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
)

// Rules say when objects expire.
type Rules interface {
	// Due returns when an object expires. It parses no more than it needs.
	Due(key object.Key, body []byte) When
	// Groups returns the groups of an object of which only the newest ones are kept. A body is nil if there is no object.
	Groups(key object.Key, body []byte) []Group
}

// When is when an object expires.
type When struct {
	At   time.Time // zero: it does not expire
	Look time.Time // when its first review is due: at At, or earlier
	// Doubt: only a review can say whether it expires, and each write after Look may change that.
	Doubt bool
}

// Group is objects of which a policy keeps the newest.
type Group struct {
	Policy string // its uid and generation
	Name   string
	Newest int64
	Acts   bool // the policy has been started
}

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
	Due     Rules                                        // may be nil
}

const (
	setExpiry = `
INSERT INTO object_expiries (object, expires_at) VALUES ($1, $2)
ON CONFLICT (object) DO UPDATE SET expires_at = excluded.expires_at`
	// KeepEvent lets an Event stay at least until a time.
	KeepEvent = `
UPDATE object_expiries SET expires_at = $3 WHERE expires_at < $3 AND object IN (SELECT id FROM objects WHERE kind = 'events' AND namespace = $1 AND name = $2)`
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

	joinGroup  = `INSERT INTO expiry_groups (policy, name, object) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`
	leaveGroup = `DELETE FROM expiry_groups WHERE policy = $1 AND name = $2 AND object = $3`
	// enqueueOlder enqueues the object behind the newest ones of a group.
	enqueueOlder = `
INSERT INTO expiry_reviews (uid, review_after, review_count, event, created_at)
SELECT o.uid, CAST($4 AS bigint), 0, 'policy', CAST($4 AS bigint) FROM (
    SELECT object FROM expiry_groups WHERE policy = $1 AND name = $2 ORDER BY object DESC LIMIT 1 OFFSET $3
) g JOIN objects o ON o.id = g.object WHERE TRUE
ON CONFLICT (uid) DO UPDATE SET
    review_after = CASE WHEN excluded.review_after < expiry_reviews.review_after THEN excluded.review_after ELSE expiry_reviews.review_after END,
    claim_token = NULL, claim_until = NULL`

	// CountNewer counts the newer objects of a group, up to a bound: primary key.
	CountNewer = `
SELECT count(*) FROM (SELECT 1 FROM expiry_groups WHERE policy = $1 AND name = $2 AND object > $3 LIMIT $4) AS newer`
	// JoinUnchanged is for an object that has not been written since it was read: a write does it itself.
	JoinUnchanged = `
INSERT INTO expiry_groups (policy, name, object) SELECT CAST($1 AS text), CAST($2 AS text), id FROM objects WHERE id = $3 AND revision = $4
ON CONFLICT DO NOTHING`
	// ForgetGroups deletes some rows of a policy that are not of its groups as they are now.
	ForgetGroups = `
DELETE FROM expiry_groups WHERE (policy, name, object) IN (
    SELECT policy, name, object FROM expiry_groups WHERE policy > $1 AND policy < $2 AND policy <> $3 LIMIT 1000
) RETURNING object`

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
	if l.Due == nil {
		return
	}
	if w.Body != nil {
		enqueue(b, w, l.Due)
	}
	queueGroups(b, w, l.Due)
}

// enqueue adds the statement that enqueues an object for its first review, unless a row is there for this
// time or an earlier one. An object that was restored after its time stays: otherwise it could not come back. The
// review of an object that expires later, or has left, does nothing. docs/spec/expiry.md has the argument.
func enqueue(b *sqldb.Batch, w Write, rules Rules) {
	when := rules.Due(w.Key, w.Body)
	look := when.Look.UnixMilli()
	switch {
	case when.At.IsZero():
		return
	case w.Restores && when.At.UnixMilli() <= w.At:
		b.Exec(enqueueRestored, w.UID, w.At+restoredLook.Milliseconds(), w.At)
		return
	case w.Before != nil:
		was := rules.Due(w.Key, w.Before)
		ahead := was.Look.UnixMilli() > w.At+clocksDiffer.Milliseconds()
		same := when.At.Equal(was.At) && when.Look.Equal(was.Look)
		if !was.At.IsZero() && (look >= was.Look.UnixMilli() && ahead || same && !when.Doubt) {
			return
		}
	}
	b.Exec(enqueueExpiry, w.UID, look, w.At)
}

// queueGroups adds the statements that keep the rows of the groups that an object is in. Where it comes, another one may no longer be
// among the newest: that one is enqueued.
func queueGroups(b *sqldb.Batch, w Write, rules Rules) {
	before, after := rules.Groups(w.Key, w.Before), rules.Groups(w.Key, w.Body)
	for _, g := range before {
		if !slices.Contains(after, g) {
			b.Exec(leaveGroup, g.Policy, g.Name, w.ID)
		}
	}
	for _, g := range after {
		if slices.Contains(before, g) {
			continue
		}
		b.Exec(joinGroup, g.Policy, g.Name, w.ID)
		if g.Acts {
			b.Exec(enqueueOlder, g.Policy, g.Name, g.Newest, w.At)
		}
	}
}

// Revisions reads the current revision, that of the last write that changed a policy of expiry, and that to which the log is
// compacted.
func Revisions(ctx context.Context, s sqldb.Sender) (current, changed, compacted int64, err error) {
	_, err = sqldb.First(ctx, s, []any{&current, &changed, &compacted}, `SELECT current, policies, compacted FROM revision`)
	return current, changed, compacted, err
}
