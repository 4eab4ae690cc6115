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
