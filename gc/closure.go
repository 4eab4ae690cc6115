package gc

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/cascades"
	"github.com/exeunt/exeunt/store/graph"
)

const (
	// uncounted is the kind Event: its objects only report about others.
	uncounted = object.Events

	// closureOwners is how many owners one batch reads dependents of. Each query
	// returns at most closure.left+1 rows.
	closureOwners = 16

	// closurePage is how many dependents of an owner one query reads at most.
	closurePage = 10_000

	// mostFollowing bounds what Remaining counts of objects that are not DELETING.
	mostFollowing = 100_000
)

// closure counts the objects that a deletion would remove. It reads heads and
// owners only. The reads are bounded by a multiple of the allowed number, however
// large the cascade is.
type closure struct {
	r          *store.Reader
	kinds      *kind.Snapshot
	root       *item
	left       int64 // objects that may still be counted
	readsLeft  int64 // dependents that may still be read
	counted    map[types.UID]bool
	gone       map[types.UID]bool // counted, and does not orphan its dependents
	emptied    map[string]bool    // namespaces whose content is counted
	frontier   []types.UID        // gone, and its dependents have not been read
	containers []types.UID        // gone Namespaces and definitions whose content has not been read

	// limits are those of the namespaces that the cascade may enter, if only their
	// objects count, each within its limit; else nil. The root's own is not among them.
	limits map[string]int64
	within map[string]int64 // objects that may still be counted in each
	excess string           // a namespace with more than its limit
}

// Excess is the limit that a deletion exceeds.
type Excess struct {
	Over      bool
	Limit     int64
	Namespace string // whose limit it is; empty means that of the deletion itself
}

// Exceeds decides for the guard whether a deletion removes more objects than it may,
// itself included, by the policy of its delete request. A confirmation of at least all
// of them lets it pass. Else it passes within the limit that the delete found, and
// within the limit of each namespace that it enters from outside. Events and objects that
// are DELETING already are not counted.
func Exceeds(ctx context.Context, r *store.Reader, kinds *kind.Snapshot, o *item, g lifecycle.Guard) (Excess, error) {
	if g.Confirmed >= lifecycle.MostCounted {
		return Excess{}, nil
	}
	if g.Confirmed > 0 {
		if over, err := exceeds(ctx, r, kinds, o, g.Confirmed); !over || err != nil {
			return Excess{}, err
		}
	}
	if !g.Unlimited && g.Limit < lifecycle.MostCounted {
		over := 0 < g.Confirmed && g.Limit <= g.Confirmed
		if !over {
			var err error
			if over, err = exceeds(ctx, r, kinds, o, g.Limit); err != nil {
				return Excess{}, err
			}
		}
		if over {
			return Excess{Over: true, Limit: g.Allowed()}, nil
		}
	}
	if o.Namespace != "" {
		return Excess{}, nil // its dependents are in its namespace
	}
	limiting, err := r.LimitingNamespaces(ctx)
	if err != nil {
		return Excess{}, err
	}
	c := newClosure(r, kinds, o, lifecycle.MostCounted)
	c.limits, c.within = map[string]int64{}, map[string]int64{}
	for name, annotations := range limiting {
		if o.Kind != object.Namespaces || o.Name != name {
			c.limits[name] = lifecycle.CascadeLimit(0, annotations)
			c.within[name] = c.limits[name]
		}
	}
	if len(c.limits) == 0 {
		return Excess{}, nil
	}
	if err := c.count(ctx); err != nil {
		return Excess{}, err
	}
	return Excess{Over: c.over(), Limit: c.limits[c.excess], Namespace: c.excess}, nil
}

// exceeds reports whether a deletion removes more than allowed objects.
func exceeds(ctx context.Context, r *store.Reader, kinds *kind.Snapshot, o *item, allowed int64) (bool, error) {
	c := newClosure(r, kinds, o, allowed)
	c.left-- // the object itself
	err := c.count(ctx)
	return c.over(), err
}

// Remaining counts the objects that a cascade under way has to remove: those that are DELETING, and up to mostFollowing+1
// that will be. In a snapshot, they and the removed ones are the whole cascade.
func Remaining(ctx context.Context, r *store.Reader, kinds *kind.Snapshot, cascade string) (int64, error) {
	open, err := cascades.ReadOpen(ctx, r, cascade)
	if err != nil {
		return 0, err
	}
	c := newClosure(r, kinds, &item{}, mostFollowing)
	c.frontier, c.containers = open.Owners, open.Containers
	for _, uid := range slices.Concat(open.Owners, open.Containers) {
		c.counted[uid], c.gone[uid] = true, true
	}
	if err := c.follow(ctx); err != nil {
		return 0, fmt.Errorf("count what follows in cascade %s: %w", cascade, err)
	}
	if c.over() {
		c.left = -1
	}
	return open.Deleting + mostFollowing - c.left, nil
}

func newClosure(r *store.Reader, kinds *kind.Snapshot, o *item, allowed int64) *closure {
	return &closure{
		r: r, kinds: kinds, root: o, left: allowed, readsLeft: 10*allowed + 10_000, emptied: map[string]bool{},
		counted: map[types.UID]bool{o.UID: true}, gone: map[types.UID]bool{o.UID: true},
	}
}

// count follows the cascade until it ends or is too large.
func (c *closure) count(ctx context.Context) error {
	if err := c.content(ctx, c.root); err != nil {
		return fmt.Errorf("count what goes with %s: %w", c.root.Key, err)
	}
	if c.root.Finalizing&store.FinalizeOrphan == 0 {
		c.frontier = append(c.frontier, c.root.UID)
	}
	if err := c.follow(ctx); err != nil {
		return fmt.Errorf("count what goes with %s: %w", c.root.Key, err)
	}
	return nil
}

func (c *closure) follow(ctx context.Context) error {
	for len(c.frontier)+len(c.containers) > 0 && !c.over() {
		n := min(len(c.frontier), closureOwners)
		owners := slices.Clone(c.frontier[:n])
		c.frontier = c.frontier[n:]
		if err := c.expand(ctx, owners); err != nil {
			return err
		}
		if err := c.contents(ctx); err != nil {
			return err
		}
	}
	return nil
}

// over reports that more than the allowed number was counted, or that counting
// took too many reads.
func (c *closure) over() bool { return c.left < 0 || c.readsLeft < 0 || c.excess != "" }

// counts reports whether the objects in a namespace matter. Those that are
// cluster-scoped may have others that do.
func (c *closure) counts(namespace string) bool {
	_, limited := c.limits[namespace]
	return c.limits == nil || limited || namespace == ""
}

// add counts an object. The dependents of one with the orphan finalizer stay.
func (c *closure) add(m *graph.Member) {
	if c.counted[m.UID] || m.Kind == uncounted || !c.counts(m.Namespace) {
		return
	}
	c.counted[m.UID] = true
	c.take(m.Namespace)
	if m.Kind == object.Namespaces || m.Kind == object.Definitions {
		c.containers = append(c.containers, m.UID)
	}
	if m.Finalizing&store.FinalizeOrphan != 0 {
		return
	}
	c.gone[m.UID] = true
	if m.Parent {
		c.frontier = append(c.frontier, m.UID)
	}
}

// take counts one object in a namespace.
func (c *closure) take(namespace string) {
	if c.limits == nil {
		c.left--
		return
	}
	if _, limited := c.limits[namespace]; limited {
		if c.within[namespace]--; c.within[namespace] < 0 {
			c.excess = namespace
		}
	}
}

// contents counts the content of the Namespaces and definitions that were counted.
func (c *closure) contents(ctx context.Context) error {
	for len(c.containers) > 0 && !c.over() {
		uid := c.containers[0]
		c.containers = c.containers[1:]
		o, err := c.r.GetByUID(ctx, uid)
		if err != nil {
			return err
		}
		if o == nil || c.stays(o) {
			continue
		}
		if o.Kind == object.Namespaces && c.limits != nil {
			c.take(o.Name) // within its own limit
		}
		if err := c.content(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// stays reports whether the kind of an object forbids its deletion.
func (c *closure) stays(o *item) bool {
	refuse := c.kinds.Rules(o.Kind).Refuse
	return refuse != nil && refuse(o.Name) != nil
}

// content counts the objects in a namespace, or those of a definition's kind.
func (c *closure) content(ctx context.Context, o *item) error {
	switch o.Kind {
	case object.Namespaces:
		c.emptied[o.Name] = true
		if !c.counts(o.Name) {
			return nil
		}
		kinds, err := c.r.Kinds(ctx, o.Name)
		if err != nil {
			return err
		}
		for _, kind := range kinds {
			if kind == uncounted {
				continue
			}
			if err := c.contained(ctx, kind, o.Name); err != nil || c.over() {
				return err
			}
		}
	case object.Definitions:
		storage, _ := kind.Defined(o.Body)
		if c.limits == nil {
			return c.contained(ctx, storage, store.AllNamespaces)
		}
		for namespace := range c.limits {
			if err := c.contained(ctx, storage, namespace); err != nil {
				return err
			}
		}
		return c.contained(ctx, storage, "")
	}
	return nil
}

// contained counts the objects of a kind in a namespace, or in all.
func (c *closure) contained(ctx context.Context, kind, namespace string) error {
	limit := c.left + 1
	if left, limited := c.within[namespace]; limited {
		limit = left + 1
	}
	found, err := graph.Members(ctx, c.r, kind, namespace, limit)
	for i := range found {
		c.addContained(&found[i])
	}
	return err
}

// addContained counts an object that is deleted with its namespace or definition:
// in the background, whatever its own policy is.
func (c *closure) addContained(m *graph.Member) {
	m.Finalizing &^= store.FinalizeOrphan
	c.add(m)
}

// expand counts the dependents that are deleted with their owners.
func (c *closure) expand(ctx context.Context, owners []types.UID) error {
	after := make([]int64, len(owners))
	for len(owners) > 0 && !c.over() {
		limit := min(c.left+1, closurePage)
		pages, err := graph.MembersBelow(ctx, c.r, owners, after, limit)
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
func (c *closure) judge(ctx context.Context, page []graph.Member) error {
	for i := range page {
		m := &page[i]
		if c.counted[m.UID] || !c.counts(m.Namespace) || c.emptied[m.Namespace] {
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
func (c *closure) kept(ctx context.Context, m *graph.Member) (bool, error) {
	if m.Owners <= 1 && m.Namespace != "" {
		return false, nil
	}
	owners, err := graph.OwnersOf(ctx, c.r, m.ID)
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
			removed, err := RemovedOwners(ctx, c.r, []types.UID{f.UID})
			if err != nil {
				return false, err
			}
			o = removed[f.UID]
		}
		if c.gone[f.UID] {
			o = o.Gone()
		}
		switch Classify(m.Namespace, Identify(c.kinds, Reference{f.As.Group, f.As.Kind, f.Name}, o), o) {
		case Solid, Unresolvable, Unknown:
			return true, nil
		}
	}
	return false, nil
}
