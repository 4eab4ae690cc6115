package gc

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

const (
	// uncounted is the kind Event: its objects only report about others.
	uncounted = object.Events

	// closureOwners is how many owners one batch reads dependents of. Each query
	// returns at most closure.left+1 rows.
	closureOwners = 16
)

// closure counts the objects that a deletion would remove. It reads heads and
// owners only. The reads are bounded by a multiple of the allowed number, however
// large the cascade is.
type closure struct {
	s         *session
	root      *item
	left      int64 // objects that may still be counted
	readsLeft int64 // dependents that may still be read
	counted   map[types.UID]bool
	gone      map[types.UID]bool // counted, and does not orphan its dependents
	frontier  []types.UID        // gone, and its dependents have not been read
}

// exceeds reports whether the deletion of an object, by the policy of its delete
// request, removes more than allowed objects, itself included. Events and objects
// that are DELETING already are not counted.
func (s *session) exceeds(ctx context.Context, o *item, allowed int64) (bool, error) {
	c := &closure{
		s: s, root: o, left: allowed, readsLeft: 10*allowed + 10_000,
		counted: map[types.UID]bool{o.UID: true}, gone: map[types.UID]bool{o.UID: true},
	}
	c.left-- // the object itself
	if err := c.content(ctx); err != nil {
		return false, fmt.Errorf("count what goes with %s: %w", o.Key, err)
	}
	if o.Finalizing&store.FinalizeOrphan == 0 {
		c.frontier = append(c.frontier, o.UID)
	}
	for len(c.frontier) > 0 && !c.over() {
		n := min(len(c.frontier), closureOwners)
		owners := slices.Clone(c.frontier[:n])
		c.frontier = c.frontier[n:]
		if err := c.expand(ctx, owners); err != nil {
			return false, fmt.Errorf("count what goes with %s: %w", o.Key, err)
		}
	}
	return c.over(), nil
}

// over reports that more than the allowed number was counted, or that counting
// took too many reads.
func (c *closure) over() bool { return c.left < 0 || c.readsLeft < 0 }

// add counts an object. The dependents of one with the orphan finalizer stay.
func (c *closure) add(m *store.Member) {
	if c.counted[m.UID] || m.Kind == uncounted {
		return
	}
	c.counted[m.UID] = true
	c.left--
	if m.Finalizing&store.FinalizeOrphan != 0 {
		return
	}
	c.gone[m.UID] = true
	if m.Parent {
		c.frontier = append(c.frontier, m.UID)
	}
}

// content counts the objects in a namespace, or those of a definition's kind.
func (c *closure) content(ctx context.Context) error {
	switch c.root.Kind {
	case object.Namespaces:
		kinds, err := c.s.tx.KindsIn(ctx, c.root.Name)
		if err != nil {
			return err
		}
		for _, kind := range kinds {
			if kind == uncounted {
				continue
			}
			found, err := c.s.tx.MembersIn(ctx, kind, c.root.Name, c.left+1)
			if err != nil || c.over() {
				return err
			}
			for i := range found {
				// Their dependents are in this namespace too, or are never collected.
				found[i].Parent = false
				c.addContained(&found[i])
			}
		}
	case object.Definitions:
		storage, _ := kind.Defined(c.root.Body)
		found, err := c.s.tx.MembersOf(ctx, storage, c.left+1)
		if err != nil {
			return err
		}
		for i := range found {
			c.addContained(&found[i])
		}
	}
	return nil
}

// addContained counts an object that is deleted with its namespace or definition:
// in the background, whatever its own policy is.
func (c *closure) addContained(m *store.Member) {
	m.Finalizing &^= store.FinalizeOrphan
	c.add(m)
}

// expand counts the dependents that are deleted with their owners.
func (c *closure) expand(ctx context.Context, owners []types.UID) error {
	after := make([]int64, len(owners))
	for len(owners) > 0 && !c.over() {
		limit := c.left + 1
		pages, err := c.s.tx.MembersBelow(ctx, owners, after, limit)
		if err != nil {
			return err
		}
		var more []types.UID
		var next []int64
		for i, page := range pages {
			c.readsLeft -= int64(len(page))
			if err := c.judge(ctx, page); err != nil {
				return err
			}
			if int64(len(page)) == limit {
				more, next = append(more, owners[i]), append(next, page[len(page)-1].ID)
			}
		}
		owners, after = more, next
	}
	return nil
}

// judge counts the members that no owner keeps.
func (c *closure) judge(ctx context.Context, page []store.Member) error {
	for i := range page {
		m := &page[i]
		if c.counted[m.UID] || c.root.Kind == object.Namespaces && m.Namespace == c.root.Name {
			continue
		}
		kept, err := c.kept(ctx, m)
		if err != nil {
			return err
		}
		if !kept {
			c.add(m)
		}
	}
	return nil
}

// kept reports whether a remaining owner keeps a dependent. Most dependents have
// one owner, the one that is deleted; they need no query.
func (c *closure) kept(ctx context.Context, m *store.Member) (bool, error) {
	if m.Owners <= 1 && m.Namespace != "" {
		return false, nil
	}
	owners, err := c.s.tx.OwnersOf(ctx, m.ID)
	if err != nil {
		return false, err
	}
	for i := range owners {
		f := &owners[i]
		// An owner that is DELETING but solid keeps the dependent for now: its own
		// deletion removes the dependent later.
		o := Owner{Removed: f.Removed, WasInside: f.Inside}
		if f.Found {
			o = OwnerOf(f.Owner)
		} else if !o.Removed {
			removed, err := RemovedOwners(ctx, &c.s.tx.Reader, []types.UID{f.UID})
			if err != nil {
				return false, err
			}
			o = removed[f.UID]
		}
		if c.gone[f.UID] {
			o = o.Gone()
		}
		switch Classify(m.Namespace, Identify(c.s.kinds, Reference{f.As.Group, f.As.Kind, f.Name}, o), o) {
		case Solid, Unresolvable, Unknown:
			return true, nil
		}
	}
	return false, nil
}
