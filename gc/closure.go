package gc

import (
	"context"
	"fmt"
	"slices"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
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

// member is an object that may belong to a closure.
type member struct {
	id, finalizing, owners int64
	uid                    types.UID
	kind, namespace        string
	parents                bool // has dependents itself
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
	if o.finalizing&store.FinalizeOrphan == 0 {
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
func (c *closure) add(m *member) {
	if c.counted[m.uid] || m.kind == uncounted {
		return
	}
	c.counted[m.uid] = true
	c.left--
	if m.finalizing&store.FinalizeOrphan != 0 {
		return
	}
	c.gone[m.uid] = true
	if m.parents {
		c.frontier = append(c.frontier, m.uid)
	}
}

// content counts the objects in a namespace, or those of a definition's kind.
func (c *closure) content(ctx context.Context) error {
	switch c.root.Kind {
	case object.Namespaces:
		kinds, err := c.s.kindsIn(ctx, c.root.Name)
		if err != nil {
			return err
		}
		for _, kind := range kinds {
			if kind == uncounted {
				continue
			}
			found, err := c.read(ctx, membersIn, kind, c.root.Name, c.left+1)
			if err != nil || c.over() {
				return err
			}
			for i := range found {
				// Their dependents are in this namespace too, or are never collected.
				found[i].parents = false
				c.addContained(&found[i])
			}
		}
	case object.Definitions:
		spec := gjson.GetBytes(c.root.Body, "spec")
		storage := kind.StorageName(spec.Get("group").String(), spec.Get("names.plural").String())
		found, err := c.read(ctx, membersOf, storage, c.left+1)
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
func (c *closure) addContained(m *member) {
	m.finalizing &^= store.FinalizeOrphan
	c.add(m)
}

// expand counts the dependents that are deleted with their owners.
func (c *closure) expand(ctx context.Context, owners []types.UID) error {
	after := make([]int64, len(owners))
	for len(owners) > 0 && !c.over() {
		limit := c.left + 1
		pages := make([][]member, len(owners))
		var b sqldb.Batch
		for i, owner := range owners {
			b.Query(scanMember(&pages[i]), membersBelow, string(owner), after[i], limit)
		}
		if err := c.s.tx.Send(ctx, &b); err != nil {
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
				more, next = append(more, owners[i]), append(next, page[len(page)-1].id)
			}
		}
		owners, after = more, next
	}
	return nil
}

// judge counts the members that no owner keeps.
func (c *closure) judge(ctx context.Context, page []member) error {
	for i := range page {
		m := &page[i]
		if c.counted[m.uid] || c.root.Kind == object.Namespaces && m.namespace == c.root.Name {
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
func (c *closure) kept(ctx context.Context, m *member) (bool, error) {
	if m.owners <= 1 && m.namespace != "" {
		return false, nil
	}
	kept := false
	var b sqldb.Batch
	b.Query(func(row sqldb.Row) error {
		var uid string
		var r Reference
		var o Owner
		var deletion, finalizing int64
		if err := row.Scan(&uid, &r.Group, &r.Kind, &r.Name, &o.Exists, &o.Kind, &o.Namespace, &o.Name, &deletion, &finalizing,
			&o.Removed, &o.WasInside); err != nil {
			return err
		}
		// An owner that is DELETING but solid keeps the dependent for now: its own
		// deletion removes the dependent later.
		o.Foreground, o.Leaving = waits(deletion, finalizing)
		if c.gone[types.UID(uid)] {
			o = o.Gone()
		}
		switch Classify(m.namespace, Identify(c.s.kinds, r, o), o) {
		case Solid, Unresolvable, Unknown:
			kept = true
		}
		return nil
	}, ownersOfMember, m.id)
	err := c.s.tx.Send(ctx, &b)
	return kept, err
}

func (c *closure) read(ctx context.Context, statement string, args ...any) ([]member, error) {
	var out []member
	var b sqldb.Batch
	b.Query(scanMember(&out), statement, args...)
	err := c.s.tx.Send(ctx, &b)
	return out, err
}

func scanMember(into *[]member) func(sqldb.Row) error {
	return func(row sqldb.Row) error {
		var m member
		err := row.Scan(&m.id, (*string)(&m.uid), &m.kind, &m.namespace, &m.finalizing, &m.parents, &m.owners)
		*into = append(*into, m)
		return err
	}
}

// The statements that count read heads and the two indexes on owners, and no
// bodies.
const (
	// membersBelow is the dependents of an owner that are not DELETING.
	membersBelow = `
SELECT d.id, d.uid, d.kind, d.namespace, d.finalizing,
    ` + isOwner + `, (SELECT count(*) FROM owners y WHERE y.dependent = d.id)
FROM owners w JOIN objects d ON d.id = w.dependent
WHERE w.owner_uid = $1 AND w.dependent > $2 AND d.deletion_time IS NULL
ORDER BY w.dependent LIMIT $3`

	// membersIn is the objects of a kind in a namespace; membersOf all of a kind.
	membersIn = `
SELECT d.id, d.uid, d.kind, d.namespace, d.finalizing, ` + isOwner + `, 0
FROM objects d WHERE d.kind = $1 AND d.namespace = $2 AND d.deletion_time IS NULL LIMIT $3`
	membersOf = `
SELECT d.id, d.uid, d.kind, d.namespace, d.finalizing, ` + isOwner + `, 0
FROM objects d WHERE d.kind = $1 AND d.deletion_time IS NULL LIMIT $2`

	// ownersOfMember is the input of Classify for each owner of a dependent.
	ownersOfMember = `
SELECT y.owner_uid, y.owner_group, y.owner_kind, y.owner_name,
    o.uid IS NOT NULL, coalesce(o.kind, ''), coalesce(o.namespace, ''), coalesce(o.name, ''), coalesce(o.deletion_time, 0), coalesce(o.finalizing, 0),
    EXISTS (SELECT 1 FROM archive a WHERE a.uid = y.owner_uid)
        OR EXISTS (SELECT 1 FROM gc_object_reviews q WHERE q.uid = y.owner_uid AND q.event IN ('owner_removed', 'cluster_owner_removed')),
    EXISTS (SELECT 1 FROM archive a WHERE a.uid = y.owner_uid AND a.namespace <> '')
        OR EXISTS (SELECT 1 FROM gc_object_reviews q WHERE q.uid = y.owner_uid AND q.event = 'owner_removed')
FROM owners y LEFT JOIN objects o ON o.uid = y.owner_uid WHERE y.dependent = $1`
)
