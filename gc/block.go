package gc

import (
	"context"
	"fmt"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/sqldb"
)

// A dependent blocks its owner's deletion only if its reference names the owner's
// kind, name and uid, and is resolvable: a reference of a cluster-scoped dependent
// to a namespaced owner would block for ever.

// isBlocked reports whether a blocking dependent is left. It stops at the first.
func (s *session) isBlocked(ctx context.Context, o *item) (bool, error) {
	group, name := referredAs(s.kinds, o.Kind)
	return s.exists(ctx, isBlocked, string(o.UID), o.Namespace, o.Name, group, name)
}

// referredAs returns the group and kind that references to a stored object name.
// For a kind that is not served, only the group is known.
func referredAs(kinds *kind.Snapshot, storage string) (group, name string) {
	if k, ok := kinds.Stored(storage); ok {
		return k.Group, k.Name
	}
	return groupOf(storage), ""
}

// holder is an object in foreground deletion that may block its owner.
type holder struct {
	uid                   types.UID
	kind, namespace, name string
}

// inCircle reports whether the owner is its own dependent, through blocking
// dependents that are in foreground deletion too. An owner without owner
// references cannot be, so most owners need no search.
func (s *session) inCircle(ctx context.Context, o *item) (bool, error) {
	if !gjson.GetBytes(o.Body, "metadata.ownerReferences.0").Exists() {
		return false, nil
	}
	seen := map[types.UID]bool{}
	for level := []holder{{o.UID, o.Kind, o.Namespace, o.Name}}; len(level) > 0 && !seen[o.UID]; {
		var next []holder
		var b sqldb.Batch
		for _, h := range level {
			group, name := referredAs(s.kinds, h.kind)
			b.Query(func(row sqldb.Row) error {
				var d holder
				if err := row.Scan((*string)(&d.uid), &d.kind, &d.namespace, &d.name); err != nil {
					return err
				}
				if !seen[d.uid] {
					seen[d.uid] = true
					next = append(next, d)
				}
				return nil
			}, waitingBlockers, string(h.uid), h.namespace, h.name, group, name)
		}
		if err := s.tx.Send(ctx, &b); err != nil {
			return false, fmt.Errorf("look for owners that wait for each other: %w", err)
		}
		level = next
	}
	return seen[o.UID], nil
}
