package store

import (
	"time"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
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
	// lifecycle.exeunt.dev/archive-for overrides it. 0: nothing is archived, and
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

// keeps says whether the body of a removed object is kept.
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

// sameCause says whether two deletions have the same cause.
func (f *effect) sameCause(other *effect) bool {
	return f.actor == other.actor && f.cascade == other.cascade && f.requester == other.requester && f.request == other.request
}
