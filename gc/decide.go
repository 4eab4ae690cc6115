package gc

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/graph"
)

// Standing is what an owner is to one of its dependents.
type Standing int

// The standings of the garbage collection proposal, as Kubernetes implements them today.
const (
	// Solid owners exist: they keep the dependent.
	Solid Standing = iota + 1
	// Dangling references have no owner: no object of that kind, name and uid
	// exists in a namespace where the dependent may have an owner.
	Dangling
	// Waiting owners are in foreground deletion: they exist until their dependents
	// are gone.
	Waiting
	// Unresolvable references are those of a cluster-scoped dependent to a
	// namespaced owner, also after the owner is gone: a reference names no
	// namespace. They keep the dependent, and an Event reports them.
	Unresolvable
	// Unknown references name a kind that this server does not serve, so the
	// collector cannot look up the owner. They keep the dependent until the kind is
	// served, and an Event reports them.
	Unknown
)

// Owner is what the database has about the uid that a reference names.
type Owner struct {
	Exists     bool   // an object has the uid
	Kind       string // its storage name
	Name       string
	Namespace  string // empty means cluster-scoped
	Foreground bool   // in foreground deletion: waits for its dependents
	Leaving    bool   // counts as gone: it exists only to pass its grace period on

	Removed   bool // this server removed an object with the uid
	WasInside bool // the removed object was in a namespace
}

// Gone is the owner after its removal.
func (o Owner) Gone() Owner { return Owner{Removed: true, WasInside: o.Namespace != ""} }

// Classify judges one reference of a dependent in a namespace (empty if the
// dependent is cluster-scoped). The owner is the object with the kind, the name
// and the uid of the reference; the uid alone is not enough.
//
// A removed owner of an unserved kind is gone for certain: uids are never reused,
// and this server removed that one.
func Classify(namespace string, n Named, o Owner) Standing {
	switch {
	case o.Exists && n.Same:
		return classifyExisting(namespace, o)
	case n.Served && namespace == "" && n.Namespaced, !n.Served && o.Removed && namespace == "" && o.WasInside:
		return Unresolvable
	case n.Served, o.Removed:
		return Dangling
	default:
		return Unknown
	}
}

func classifyExisting(namespace string, o Owner) Standing {
	switch {
	case namespace == "" && o.Namespace != "":
		return Unresolvable
	case o.Namespace != "" && o.Namespace != namespace:
		return Dangling
	case o.Foreground:
		return Waiting
	case o.Leaving:
		return Dangling
	default:
		return Solid
	}
}

// Action is what the collector does with a dependent.
type Action int

// The actions.
const (
	Keep   Action = iota + 1 // nothing: it has no owners, or only solid ones
	Unlink                   // drop the references in Drop, keep the object
	Delete                   // delete it with Policy
)

// Decision is the result of Decide for one dependent.
type Decision struct {
	Action Action
	Drop   []int                      // for Unlink: the references to drop, by their index
	Policy metav1.DeletionPropagation // for Delete
}

// Decide is the garbage processor's rule. One solid owner keeps the object, and
// its dangling and waiting references are dropped. Without a solid owner the
// object is deleted, by its own policy: the finalizer it carries; or in the
// foreground if its owner waits and it has dependents itself; or in the
// background. So the last deletion decides (the garbage collection proposal's open question 1).
func Decide(m *metav1.ObjectMeta, standing func(*metav1.OwnerReference) Standing, hasDependents bool) Decision {
	if len(m.OwnerReferences) == 0 {
		return Decision{Action: Keep}
	}
	var drop []int
	waiting := false
	for i := range m.OwnerReferences {
		switch standing(&m.OwnerReferences[i]) {
		case Dangling:
			drop = append(drop, i)
		case Waiting:
			drop, waiting = append(drop, i), true
		}
	}
	// Of two references with one uid each has a standing of its own: an owner that waits
	// must not wait for an object that a reference to another kind keeps.
	solid := len(drop) < len(m.OwnerReferences)
	switch {
	case solid && len(drop) == 0:
		return Decision{Action: Keep}
	case solid:
		return Decision{Action: Unlink, Drop: drop}
	case slices.Contains(m.Finalizers, metav1.FinalizerOrphanDependents):
		return Decision{Action: Delete, Policy: metav1.DeletePropagationOrphan}
	case slices.Contains(m.Finalizers, metav1.FinalizerDeleteDependents), waiting && hasDependents:
		return Decision{Action: Delete, Policy: metav1.DeletePropagationForeground}
	default:
		return Decision{Action: Delete, Policy: metav1.DeletePropagationBackground}
	}
}

// A dependent blocks its owner's deletion only if the owner owns it, as for Classify: its
// reference names the owner's kind, name and uid, and a namespaced owner is in the
// dependent's namespace. Of several references with one uid the first that blocks counts
// (store.ownersOf).

// isBlocked reports whether a blocking dependent is left, other than through a circle: of owners
// that wait for each other in a circle, the one that is reviewed last goes first.
func (s *session) isBlocked(ctx context.Context, o *item) (bool, error) {
	blocked, circle, err := graph.Blocked(ctx, s.tx, s.named(o.Key, o.UID))
	if err != nil {
		return false, err
	}
	return s.waits(ctx, o, blocked, circle)
}

// waits is isBlocked with what the store answered.
func (s *session) waits(ctx context.Context, o *item, blocked, circle bool) (bool, error) {
	if !blocked || !circle {
		return blocked, nil
	}
	circle, err := s.inCircle(ctx, o)
	return !circle, err
}

// blockedBy reports whether one of the dependents that this review made DELETING blocks the owner:
// then the owner waits, and the store need not be asked. In a circle each review but the last finds
// such a dependent.
func (s *session) blockedBy(batch []*item, o *item) (bool, error) {
	owner := s.named(o.Key, o.UID)
	for _, d := range batch {
		if !d.Deleting {
			continue
		}
		m, err := object.ParseMeta(d.Body)
		if err != nil {
			return false, fmt.Errorf("read %s: %w", d.Key, err)
		}
		at := slices.IndexFunc(m.OwnerReferences, func(r metav1.OwnerReference) bool {
			return r.UID == owner.UID && r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion
		})
		if at >= 0 && blocks(&m.OwnerReferences[at], d.Namespace, owner) {
			return true, nil
		}
	}
	return false, nil
}

// blocks reports whether a reference of a dependent in a namespace blocks the owner's deletion.
func blocks(r *metav1.OwnerReference, namespace string, owner store.Named) bool {
	named := ReferenceOf(r)
	return r.UID == owner.UID && r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion &&
		named.Name == owner.Name && named.Group == owner.As.Group && (owner.As.Kind == "" || named.Kind == owner.As.Kind) &&
		(owner.Namespace == "" || owner.Namespace == namespace)
}

func (s *session) named(key object.Key, uid types.UID) store.Named { return AsOwner(s.kinds, key, uid) }

// AsOwner returns an object as references name it. For a kind that is not served,
// only the group is known.
func AsOwner(kinds *kind.Snapshot, key object.Key, uid types.UID) store.Named {
	n := store.Named{Key: key, UID: uid, As: store.GroupKind{Group: groupOf(key.Kind)}}
	if k, ok := kinds.Stored(key.Kind); ok {
		n.As = store.GroupKind{Group: k.Group, Kind: k.Name}
	}
	return n
}

// inCircle reports whether the owner is its own dependent, through blocking
// dependents that are in foreground deletion too.
func (s *session) inCircle(ctx context.Context, o *item) (bool, error) {
	seen := map[types.UID]bool{}
	for level := []store.Named{s.named(o.Key, o.UID)}; len(level) > 0 && !seen[o.UID]; {
		blockers, err := graph.ForegroundBlockers(ctx, s.tx, level)
		if err != nil {
			return false, fmt.Errorf("look for owners that wait for each other: %w", err)
		}
		level = nil
		for _, d := range blockers {
			if !seen[d.UID] {
				seen[d.UID] = true
				level = append(level, s.named(d.Key, d.UID))
			}
		}
	}
	return seen[o.UID], nil
}
