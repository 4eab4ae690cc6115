package store

import (
	"time"

	"github.com/exeunt/exeunt/sqldb"
)

// A removal writes a row into the table archive, in its own transaction. The
// row says what went, when, who asked for it and in which cascade. The body is
// not copied: the row points at the object's last one in changes.
//
// Three jobs touch such a body, and each of them holds the lock on the
// revision, so they come one after the other:
//
//   - A removal writes the row together with its tombstone, so no compaction
//     can see the one without the other.
//   - Compaction, when it passes the tombstone, deletes the body unless a row
//     points at it (compactBodies). The row's id is the tombstone's revision.
//   - Expiry deletes the row. If compaction has passed the tombstone it will
//     not come by again, so expiry deletes the body too; if not, the body still
//     belongs to watchers and to lists of the past, and compaction, which now
//     finds no row, deletes it in its time (forget).
//
// Whichever of the last two comes first, the body goes exactly when neither
// needs it, and a crash between them leaves what the next run finds.
//
// Who and why: a DELETING object carries deletion_actor and deletion_cascade in
// its head, set by whoever marked it first; a removal that meets them takes
// them. A cascade is named by the uid of the object whose deletion began it, so
// a delete request needs to store nothing, and the collector, who removes for
// the sake of an owner, passes that owner's cascade on, and with it the
// requester: the client whose delete began the cascade.

// defaultArchiveFor is for what is in the archive while it is switched off.
const defaultArchiveFor = 24 * time.Hour

// nobody is the actor of a removal that no caller asked for.
const nobody = "system:exeunt"

// ArchiveOptions say what becomes of removed objects.
type ArchiveOptions struct {
	// For is how long they are kept; a Namespace's annotation
	// lifecycle.exeunt.dev/archive-for overrides it. 0: nothing is archived.
	// What was archived before then leaves after 24 hours.
	For time.Duration
	// MaxBytes bounds the bodies that are kept; the oldest leave first.
	// Default 1 GiB.
	MaxBytes int64
	// DropSecrets: the archive knows only that they went. Otherwise they are kept
	// with their bodies, sealed as they were.
	DropSecrets bool
}

// archivist writes archive rows.
type archivist struct {
	on      bool
	secrets bool // their bodies are kept
}

func newArchivist(o ArchiveOptions) archivist {
	return archivist{on: o.For > 0, secrets: !o.DropSecrets}
}

// queue adds the statement that archives a removed object and returns the size
// of what is kept.
func (a archivist) queue(b *sqldb.Batch, f *effect) int64 {
	// Events tell of others; nobody wants them back.
	if !a.on || f.key.Kind == "events" {
		return 0
	}
	keep, size := a.keeps(f), a.size(f)
	actor, cascade, requester := f.causeOfRemoval()
	if f.before.deleting {
		cascade, requester = nil, nil
	}
	b.Exec(insertArchived, f.id, f.revision, f.at, actor, cascade, size, keep, requester)
	return size
}

// keeps says whether the body of a removed object is kept.
func (a archivist) keeps(f *effect) bool { return a.secrets || f.key.Kind != "secrets" }

// size is what a removed object takes in the archive.
func (a archivist) size(f *effect) int64 {
	// Events tell of others; nobody wants them back.
	if !a.on || f.key.Kind == "events" || !a.keeps(f) {
		return 0
	}
	return int64(f.before.stored)
}

// cause is what the head of an object is to say about its deletion: nil, but
// for an effect that marks it.
func (f *effect) cause() (actor, cascade, requester any) {
	if f.deletionTime == nil || f.before.deleting {
		return nil, nil, nil
	}
	return f.causeOfRemoval()
}

// causeOfRemoval is why a deletion begins or ends here. Nil: the cascade is the
// object's own; the actor itself asked.
func (f *effect) causeOfRemoval() (actor, cascade, requester any) {
	if actor = f.actor; f.actor == "" {
		actor = nobody
	}
	if f.cascade != "" {
		cascade = f.cascade
	}
	if f.requester != "" && f.requester != f.actor {
		requester = f.requester
	}
	return actor, cascade, requester
}

// sameCause says whether two deletions are told in the same words.
func (f *effect) sameCause(other *effect) bool {
	return f.actor == other.actor && f.cascade == other.cascade && f.requester == other.requester
}
