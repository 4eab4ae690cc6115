package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/expiry"
)

// A removal writes a row into the table archive, in its own transaction. The
// row says what went, when, who asked for it and in which cascade. The body is
// not copied: the row points into changes, at the object as it was when its deletion
// was asked for. For an object that was DELETING, objects.asked_body keeps that
// body until the removal; for the others it is the last one.
//
// Three jobs touch such a body, and each of them holds the lock on the
// revision, so they come one after the other:
//
//   - A removal writes the row together with its tombstone, so no compaction
//     can see the one without the other.
//   - Compaction, when it passes the change that replaced the body (the
//     tombstone, or the update that marked the object), deletes the body unless a
//     row or a head points at it (compactBodies).
//   - Expiry deletes the rows of a cascade. If compaction has passed that change it will
//     not come by again, so expiry deletes the body too; if not, the body still
//     belongs to watchers and to lists of the past, and compaction, which now
//     finds no row, deletes it in its time (forget in expiry/expiry.go).
//
// In either order of the last two, the body is deleted as soon as neither needs
// it. After a crash between them, the next run finds what is left.
//
// Who and why: an object that is being deleted has deletion_actor and
// deletion_cascade in its head, set by the first delete; its removal copies
// them. The id of a cascade is the uid of the object whose deletion began it, so
// a delete request stores nothing more. A restored object keeps its uid, and has
// begun a cascade of that name before: objects.own_cascade is the id of its next one. The collector, when it deletes the
// dependents of an owner, passes on the owner's cascade with its requester and request:
// the client whose delete began the cascade, and the Audit-Id of that delete.

// systemActor is the actor of a removal that no client requested.
const systemActor = "system:exeunt"

// ArchiveOptions configure the archive of removed objects.
type ArchiveOptions struct {
	// For is how long they are kept; a Namespace's annotation
	// lifecycle.exeunt.dev/archive-for overrides it. 0 means nothing is archived, and
	// objects that are in the archive already are kept for 24 hours.
	For time.Duration
	// MaxBytes bounds the archived bodies. Each namespace has a fair share of it, in which the oldest
	// cascades leave first. Default 1 GiB.
	MaxBytes int64
	// DropSecrets archives Secrets without their bodies. Otherwise the bodies are
	// kept, sealed as they were.
	DropSecrets bool
}

// archivist writes archive rows.
type archivist struct {
	on      bool
	secrets bool // keep the bodies of Secrets
}

func newArchivist(o ArchiveOptions) archivist {
	return archivist{on: o.For > 0, secrets: !o.DropSecrets}
}

// queue adds the statement that archives a removed object and returns the bytes
// that it keeps.
func (a archivist) queue(b *sqldb.Batch, f *effect) int64 {
	if !a.on || !worthArchiving(f.key) {
		return 0
	}
	keep, size := a.keeps(f), a.size(f)
	c := f.causeOfRemoval()
	if f.before.deleting {
		c.cascade, c.requester, c.request = nil, nil, nil
	}
	b.Exec(insertArchived, f.id, f.revision, f.at, c.actor, c.cascade, size, keep, c.requester, c.request)
	return size
}

// worthArchiving is false for objects that there is no reason to restore: Events, what
// clients cannot write, and the ConfigMap that the server writes into every namespace.
func worthArchiving(k object.Key) bool {
	switch k.Kind {
	case object.Events, object.APIServices, object.NodePorts:
		return false
	}
	return k.Kind != object.ConfigMaps || k.Name != object.RootCA
}

// supersede adds the statements that remove the earlier rows of restored objects.
func (q *statements) supersede(run []*effect) {
	var uids []string
	for _, f := range run {
		if q.archive.on && f.before.own != "" {
			uids = append(uids, f.uid)
		}
	}
	if len(uids) == 0 {
		return
	}
	for _, statement := range supersede {
		q.queued.Exec(statement[q.engine], sqldb.List(q.engine, uids))
	}
}

// keeps reports whether the body of a removed object is kept.
func (a archivist) keeps(f *effect) bool { return a.secrets || f.key.Kind != object.Secrets }

// size is how many bytes a removed object takes in the archive.
func (a archivist) size(f *effect) int64 {
	if !a.on || !worthArchiving(f.key) || !a.keeps(f) {
		return 0
	}
	return int64(f.before.stored)
}

// cause is who deletes an object, as the columns of a head or of an archive row: each
// is a string, or nil. A nil cascade is the object's own; a nil requester is the actor;
// a nil request means that no request of the API began the cascade.
type cause struct{ actor, cascade, requester, request any }

// cause is what an update writes into the head about the deletion: nil, except
// for the effect that begins the deletion.
func (f *effect) cause() cause {
	if f.deletionTime == nil || f.before.deleting {
		return cause{}
	}
	return f.causeOfRemoval()
}

// causeOfRemoval is who deletes the object, in which cascade.
func (f *effect) causeOfRemoval() cause {
	c := cause{actor: f.actor}
	if f.actor == "" {
		c.actor = systemActor
	}
	if f.cascade != "" {
		c.cascade = f.cascade
	}
	if f.requester != "" && f.requester != f.actor {
		c.requester = f.requester
	}
	if f.request != "" {
		c.request = f.request
	}
	return c
}

// sameCause reports whether two deletions have the same cause.
func (f *effect) sameCause(other *effect) bool {
	return f.actor == other.actor && f.cascade == other.cascade && f.requester == other.requester && f.request == other.request && f.author == other.author
}

// Eviction is cascades that leave the archive before their time.
type Eviction = expiry.Eviction

// OnEvict has fn called in the transaction that evicts cascades, before they leave. The last fn
// counts.
func (s *Store) OnEvict(fn func(context.Context, *Tx, Eviction) error) { s.onEvict.Store(&fn) }

// Evicted counts the cascades that this process evicted.
func (s *Store) Evicted() int64 { return s.expiry.Evicted() }

// ForgetArchived is expiry.Expiry.Purge.
func (s *Store) ForgetArchived(ctx context.Context, ids []int64) (int, error) {
	return s.expiry.Purge(ctx, ids)
}

// Expiries is expiry.Expiry.Until; of has any removed object of each cascade, by the cascade's id.
func (s *Store) Expiries(ctx context.Context, of map[string]*Archived) (map[string]int64, error) {
	removals := make(map[string]expiry.Removal, len(of))
	for id, a := range of {
		removals[id] = expiry.Removal{Namespace: a.Namespace, At: a.RemovedAt}
	}
	return s.expiry.Until(ctx, removals)
}

// expiring is the transaction as package expiry uses it.
func (s *Store) expiring(t *Tx) *expiry.Tx {
	x := &expiry.Tx{Sender: t, Engine: t.engine, Now: t.Now, Revision: t.revision, Compacted: t.moved}
	x.OnPurge = func(ctx context.Context, ids []int64) error { return s.past.Purge(ctx, t.history(), ids) }
	if report := s.onEvict.Load(); report != nil {
		x.OnEvict = func(ctx context.Context, e Eviction) error { return (*report)(ctx, t, e) }
	}
	return x
}

func newExpiry(s *Store) *expiry.Expiry {
	return expiry.New(expiry.Options{
		DB: s.db, Now: s.now, Logger: s.log, For: s.opts.Archive.For, MaxBytes: s.opts.Archive.MaxBytes,
		Transact: func(ctx context.Context, fn func(*expiry.Tx) error) error {
			return s.Transact(ctx, func(t *Tx) error { return fn(s.expiring(t)) })
		},
	})
}

// Dropped is an object that lacks a reference, to an owner that is gone.
type Dropped struct {
	Stored
	DroppedReference
	Others bool // it lacks other references too
}

// DroppedFor reads the references that wait for an owner, with their dependents.
// It leaves out dependents that are gone or DELETING.
func (t *Tx) DroppedFor(ctx context.Context, owner types.UID, limit int) (out []*Dropped, err error) {
	err = t.rows(ctx, func(row sqldb.Row) error {
		d := &Dropped{}
		if err := row.Scan(append([]any{(*string)(&d.Owner), &d.Reference, &d.Known, &d.Others}, d.fields()...)...); err != nil {
			return err
		}
		out = append(out, d)
		return t.Reader.finish(&d.Stored)
	}, droppedFor, string(owner), limit)
	return out, err
}

// AnyDroppedFor reports whether references wait for an owner.
func (r *Reader) AnyDroppedFor(ctx context.Context, owner types.UID) (bool, error) {
	return r.one(ctx, []any{new(int64)}, `SELECT 1 FROM dropped_references WHERE owner_uid = $1 LIMIT 1`, string(owner))
}

// Dropped reads the references that objects lack, by dependent, in the order of the owners' uids.
func (r *Reader) Dropped(ctx context.Context, dependents ...types.UID) (map[types.UID][]DroppedReference, error) {
	lacks := map[types.UID][]DroppedReference{}
	err := r.rows(ctx, func(row sqldb.Row) error {
		var dependent types.UID
		var d DroppedReference
		err := row.Scan((*string)(&dependent), (*string)(&d.Owner), &d.Reference, &d.Known)
		lacks[dependent] = append(lacks[dependent], d)
		return err
	}, droppedBy[r.engine], sqldb.List(r.engine, dependents))
	return lacks, err
}

var droppedBy = sqldb.WithLists(`
SELECT dependent_uid, owner_uid, reference, known FROM dropped_references WHERE dependent_uid IN LIST($1, text) ORDER BY dependent_uid, owner_uid`)

// AnyDropped reports which of some uids are named in a dropped reference, as its owner or
// as its dependent.
func (r *Reader) AnyDropped(ctx context.Context, uids []types.UID) (map[types.UID]bool, error) {
	found, err := sqldb.Column[types.UID](ctx, r, droppedUIDs[r.engine], sqldb.List(r.engine, uids))
	named := make(map[types.UID]bool, len(found))
	for _, uid := range found {
		named[uid] = true
	}
	return named, err
}

var droppedUIDs = sqldb.WithLists(`
SELECT owner_uid FROM dropped_references WHERE owner_uid IN LIST($1, text)
UNION SELECT dependent_uid FROM dropped_references WHERE dependent_uid IN LIST($1, text)`)

// SettleDropped deletes a reference.
func (t *Tx) SettleDropped(d *Dropped) {
	t.Defer(`DELETE FROM dropped_references WHERE owner_uid = $1 AND dependent_uid = $2`, string(d.Owner), string(d.UID))
}

// SetKnown replaces the known owners of a reference that an object lacks.
func (t *Tx) SetKnown(dependent types.UID, d DroppedReference) {
	t.Defer(`UPDATE dropped_references SET known = $3 WHERE owner_uid = $1 AND dependent_uid = $2`, string(d.Owner), string(dependent), d.Known)
}

// RememberDropped records references that an object is about to lose, because their owners
// go: a restore of an owner gives them back. before are all of its references, drop the
// indexes of those.
func (t *Tx) RememberDropped(o *Stored, before []metav1.OwnerReference, drop []int) error {
	if !t.writes.archive.on {
		return nil
	}
	known, err := KnownOwners(before)
	if err != nil {
		return err
	}
	for _, i := range drop {
		reference, err := json.Marshal(before[i])
		if err != nil {
			return fmt.Errorf("remember reference: %w", err)
		}
		t.Defer(rememberDropped, string(before[i].UID), string(o.UID), string(reference), known)
	}
	return nil
}

// KnownOwners encodes the owners of references as DroppedReference.Known has them.
func KnownOwners(references []metav1.OwnerReference) (string, error) {
	uids := make([]types.UID, len(references))
	for i, o := range references {
		uids[i] = o.UID
	}
	data, err := json.Marshal(uids)
	return string(data), err
}

const droppedFor = `
SELECT r.owner_uid, r.reference, r.known,
    EXISTS (SELECT 1 FROM dropped_references x WHERE x.dependent_uid = r.dependent_uid AND x.owner_uid <> r.owner_uid), ` + headColumns + `, c.body
FROM dropped_references r JOIN objects d ON d.uid = r.dependent_uid JOIN changes c ON c.revision = d.revision
WHERE r.owner_uid = $1 AND d.deletion_time IS NULL
ORDER BY r.dependent_uid LIMIT $2`
