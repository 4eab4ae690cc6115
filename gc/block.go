package gc

import (
	"context"
	"fmt"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// A dependent blocks its owner's deletion only if its reference names the owner's
// kind, name and uid, and is resolvable: a reference of a cluster-scoped dependent
// to a namespaced owner would block for ever.

// isBlocked reports whether a blocking dependent is left. It stops at the first.
func (s *session) isBlocked(ctx context.Context, o *item) (bool, error) {
	return s.tx.IsBlocked(ctx, s.named(o.Key, o.UID))
}

// named returns an object as references name it. For a kind that is not served,
// only the group is known.
func (s *session) named(key object.Key, uid types.UID) store.Named {
	n := store.Named{Key: key, UID: uid, As: store.GroupKind{Group: groupOf(key.Kind)}}
	if k, ok := s.kinds.Stored(key.Kind); ok {
		n.As = store.GroupKind{Group: k.Group, Kind: k.Name}
	}
	return n
}

// inCircle reports whether the owner is its own dependent, through blocking
// dependents that are in foreground deletion too. An owner without owner
// references cannot be, so most owners need no search.
func (s *session) inCircle(ctx context.Context, o *item) (bool, error) {
	if !gjson.GetBytes(o.Body, "metadata.ownerReferences.0").Exists() {
		return false, nil
	}
	seen := map[types.UID]bool{}
	for level := []store.Named{s.named(o.Key, o.UID)}; len(level) > 0 && !seen[o.UID]; {
		blockers, err := s.tx.ForegroundBlockers(ctx, level)
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
