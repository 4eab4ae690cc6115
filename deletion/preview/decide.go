package preview

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// question is an object that decide decides about.
type question struct {
	*head
	meta metav1.ObjectMeta
}

// decide applies the collector's rule to each object, with the owners as they are
// at this point of the walk.
func (w *walk) decide(open []question) error {
	if len(open) == 0 {
		return nil
	}
	owners, err := w.lookUp(open)
	if err != nil {
		return err
	}
	for i := range open {
		if err := w.decideOne(&open[i], owners); err != nil {
			return err
		}
	}
	return nil
}

// lookUp reads the owners, except those that are known to be gone at once.
func (w *walk) lookUp(open []question) (map[types.UID]gc.Owner, error) {
	var uids []types.UID
	seen := map[types.UID]bool{}
	for i := range open {
		for _, r := range open[i].meta.OwnerReferences {
			if n := w.find(r.UID); !seen[r.UID] && (n == nil || n.state != gone || n.passes) {
				seen[r.UID] = true
				uids = append(uids, r.UID)
			}
		}
	}
	return w.r.owners(uids)
}

func (w *walk) decideOne(q *question, owners map[types.UID]gc.Owner) error {
	standing := func(r *metav1.OwnerReference) gc.Standing { return w.standing(q.Namespace, r, owners) }
	d := gc.Decide(&q.meta, standing, q.Parent)
	n := node{state: kept, grace: noGrace}
	tally := w.tally(q, owners)
	if d.Action == gc.Delete && tally.orphaning == 0 { // orphaning drops dangling references too
		options := metav1.DeleteOptions{PropagationPolicy: &d.Policy}
		if tally.grace != noGrace {
			seconds := int64(tally.grace)
			options.GracePeriodSeconds = &seconds
			if q.Parent {
				lifecycle.WithPropagatedGrace(&q.meta, seconds)
			}
		}
		var err error
		if n, err = w.collect(q.head, q.meta, options); err != nil {
			return err
		}
		n.uncertain = (tally.waiting > 0 && tally.waiting < tally.leaving || w.asksLate(q)) && !w.later
	} else if tally.orphaning > 0 {
		n.state = orphaned
		// Either its last reference is dropped first, or its last owner leaves first.
		n.uncertain = tally.leaving > tally.orphaning
	}
	n.several, n.misnames = tally.leaving > 1, tally.misnamed
	w.misnames = w.misnames || n.misnames
	n.byOther = n.leaving() && w.byOther(q)
	// One that is named by an unserved kind keeps the object for a while, in which the others may go first.
	n.uncertain = n.uncertain || tally.uncertain || tally.misnamed && tally.leaving > 1
	if !w.leaf(q, n) {
		w.put(q.head, n)
	}
	return nil
}

// collects reports whether the collector deletes an object because of its owners.
func (w *walk) collects(h *head) (bool, error) {
	m, err := object.ParseMeta(h.Body)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", h.Key, err)
	}
	owners, err := w.lookUp([]question{{h, m}})
	standing := func(r *metav1.OwnerReference) gc.Standing { return w.standing(h.Namespace, r, owners) }
	return gc.Decide(&m, standing, h.Parent).Action == gc.Delete, err
}

// asksLate reports whether the collector may ask webhooks and policies too late: while it asks, an
// owner in foreground deletion that the object does not block stops waiting. The object then goes after
// an owner that something else holds, does not wait for its own dependents, and has no grace period of the owner.
func (w *walk) asksLate(q *question) bool {
	return slices.ContainsFunc(q.meta.OwnerReferences, func(r metav1.OwnerReference) bool {
		n := w.find(r.UID)
		return n != nil && n.state == foreground && (n.holds || q.Parent || n.grace != noGrace) && (r.BlockOwnerDeletion == nil || !*r.BlockOwnerDeletion)
	}) && w.asks(q.Kind)
}

// asks reports whether the collector asks webhooks or policies about deletes of a kind.
func (w *walk) asks(kind string) bool { return w.judges != nil && len(w.judges(kind)) > 0 }

// byOther reports whether an object leaves by an earlier deletion: its last owner
// to leave was DELETING before, and solid until then.
func (w *walk) byOther(q *question) bool {
	caused := false
	for _, r := range q.meta.OwnerReferences {
		n := w.find(r.UID)
		if n == nil || !n.leaving() {
			continue
		}
		if n.byOther || n.was && n.state != foreground {
			return true
		}
		caused = caused || !n.was
	}
	return !caused
}

// tally counts the owners of an object that exist and leave in this walk.
type tally struct {
	leaving, waiting, orphaning int
	grace                       int32 // the longest that they pass on, in seconds
	uncertain                   bool
	misnamed                    bool // an unserved kind keeps the object until its owner is gone, which then passes no grace period on
}

func (w *walk) tally(q *question, owners map[types.UID]gc.Owner) tally {
	t := tally{grace: noGrace}
	misnamed, seen := map[types.UID]bool{}, map[types.UID]bool{}
	for _, r := range q.meta.OwnerReferences {
		if n, o := w.find(r.UID), owners[r.UID]; n != nil && n.leaving() && o.Exists {
			named := gc.Identify(w.kinds, gc.ReferenceOf(&r), o)
			misnamed[r.UID] = misnamed[r.UID] || !named.Same && !named.Served
		}
	}
	for _, r := range q.meta.OwnerReferences {
		n := w.find(r.UID)
		t.uncertain = t.uncertain || n != nil && (n.uncertain || w.later && w.uncertain(n))
		if n == nil || !n.leaving() || seen[r.UID] || owners[r.UID].Foreground {
			continue // not leaving, or in foreground deletion before: never solid in this walk
		}
		seen[r.UID] = true
		// If their grace periods differ, the owner that is reviewed first decides.
		grace := n.grace
		if misnamed[r.UID] {
			grace, t.misnamed = noGrace, true
		}
		t.uncertain = t.uncertain || len(seen) > 1 && t.grace != grace
		t.grace = max(t.grace, grace)
		t.leaving++
		if n.orphans && w.later {
			t.orphaning++
		}
		switch n.state {
		case foreground:
			t.waiting++
		case orphaning:
			t.orphaning++
		case held, emptying, stalled:
			if !w.later && !n.passes {
				t.leaving--
			}
		}
	}
	return t
}

// fate returns the node of an object after a delete: its state, whether another
// client must act before it can leave, and the grace period that it passes on.
func (w *walk) fate(h *head, m metav1.ObjectMeta, options metav1.DeleteOptions) (node, error) {
	d, err := lifecycle.BeforeDelete(lifecycle.Deletion{
		Body: h.Body, Meta: m, Options: options, Rules: w.kinds.Rules(h.Kind), Now: w.now,
	})
	if object.Is(err, object.Forbidden) || w.denied != nil && len(w.nodes) == 0 {
		return node{state: kept, grace: noGrace, refused: true}, nil
	}
	if err != nil {
		return node{}, fmt.Errorf("delete %s: %w", h.Key, err)
	}
	if d.Outcome == lifecycle.Remove {
		return node{state: gone, grace: noGrace}, nil
	}
	return w.deleting(h.Key, d.Meta, d.Body), nil
}

// collect is fate for a delete by the collector, which a policy may refuse. The collector asks again and
// again: what waits for the object waits.
func (w *walk) collect(h *head, m metav1.ObjectMeta, options metav1.DeleteOptions) (node, error) {
	n, err := w.fate(h, m, options)
	if err != nil || n.refused || w.collected == nil {
		return n, err
	}
	emptied, err := w.isEmptied(h.Namespace)
	if err == nil && w.collected(w.r.ctx, h.Object, options, emptied) != nil {
		n = node{state: held, holds: true, denied: true, orphans: n.state == orphaning, grace: noGrace}
	}
	return n, err
}

// isEmptied reports whether a namespace leaves, in this walk or by an earlier deletion.
func (w *walk) isEmptied(namespace string) (bool, error) {
	if namespace == "" {
		return false, nil
	}
	h, found, err := w.r.Head(w.r.ctx, object.Key{Kind: object.Namespaces, Name: namespace})
	if n := w.find(h.UID); n != nil && n.leaving() {
		return true, err
	}
	return found && h.Deletion != 0 && !h.Held(), err
}

// deleting is fate for an object that is DELETING.
func (w *walk) deleting(key object.Key, m metav1.ObjectMeta, body []byte) node {
	if lifecycle.GuardOf(&m).Held {
		return node{state: held, holds: true, grace: noGrace}
	}
	hold := HoldersOf(key.Kind, m, body)
	rules := w.kinds.Rules(key.Kind)
	n := node{grace: noGrace, passes: slices.Contains(m.Finalizers, lifecycle.PropagateGrace)}
	n.holds = !hold.none() || key.Kind != object.Namespaces && rules.Removable != nil && !rules.Removable(body)
	switch {
	case slices.Contains(m.Finalizers, metav1.FinalizerOrphanDependents):
		n.state = orphaning
		return n
	case slices.Contains(m.Finalizers, metav1.FinalizerDeleteDependents):
		n.state = foreground
	case hold.full,
		key.Kind == object.Definitions && slices.Contains(m.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer):
		n.state = emptying
	case n.holds:
		n.state = held
	default:
		n.state = gone
	}
	if seconds, ok := lifecycle.PropagatedGrace(&m); ok && (n.passes || n.state == foreground) {
		n.grace = int32(min(seconds, math.MaxInt32))
	}
	return n
}

// Holders is what keeps a DELETING object and is not this server's to remove.
type Holders struct {
	Finalizers, Spec []string // Spec: spec.finalizers of a Namespace
	Grace            int64    // seconds
	full             bool     // a Namespace that the server empties first
}

func (h Holders) none() bool { return len(h.Finalizers) == 0 && len(h.Spec) == 0 && h.Grace == 0 }

// HoldersOf returns what keeps an object with this metadata and body.
func HoldersOf(kind string, m metav1.ObjectMeta, body []byte) Holders {
	var h Holders
	for _, f := range m.Finalizers {
		ours := f == lifecycle.ConfirmCascade || f == lifecycle.PropagateGrace ||
			f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents ||
			kind == object.Definitions && f == apiextensionsv1.CustomResourceCleanupFinalizer
		if !ours {
			h.Finalizers = append(h.Finalizers, f)
		}
	}
	if m.DeletionGracePeriodSeconds != nil {
		h.Grace = *m.DeletionGracePeriodSeconds
	}
	if kind != object.Namespaces {
		return h
	}
	spec, _ := object.SpecFinalizers(body)
	h.Spec = slices.DeleteFunc(spec, func(f string) bool { return f == string(corev1.FinalizerKubernetes) })
	h.full = len(h.Spec) < len(spec)
	return h
}

// settle computes which nodes remain, at this point of the walk: those that
// something holds, and from there upwards every foreground owner that a remaining
// dependent blocks.
//
// Owners that wait for each other in a circle do not remain because of it: the
// collector breaks the circle, and settle starts only at nodes that something
// holds.
//
// The collector drops a reference to a waiting owner if another owner is solid,
// even if that one leaves a moment later. So of two leaving owners, the first may
// not be blocked after all. A node that remains only because of such a reference
// is not certain. The same holds for nodes that a circle waits for: it is not
// defined where the collector breaks the circle.
func (w *walk) settle() {
	for i := range w.nodes {
		n := &w.nodes[i]
		own := !n.later && n.state != gone && n.leaving() && (n.holds || n.stuck || n.asks || n.state == stalled)
		n.remains, n.certain, n.blocked = own, own && !n.uncertain, false
	}
	slices.SortFunc(w.edges, func(a, b edge) int { return cmp.Compare(a.from, b.from) })
	w.spread(func(n *node) *bool { return &n.remains }, func(edge) bool { return true })
	for i := range w.edges {
		if e := w.edges[i]; w.nodes[e.from].remains && w.usable(e) {
			w.nodes[e.to].blocked = true
		}
	}
	w.spread(func(n *node) *bool { return &n.certain }, func(e edge) bool {
		from := &w.nodes[e.from]
		return !w.circle && !from.uncertain && (from.was || !from.several)
	})
}

// usable reports whether an edge blocks its owner. The edges of a kept dependent
// do not: the collector drops its references. So the dependent that leaves after a
// finished owner has not blocked it.
func (w *walk) usable(e edge) bool {
	n := &w.nodes[e.from]
	return n.leaving() && !n.later && !w.nodes[e.to].finished
}

// spread sets a mark on every owner that edges reach from a marked node.
func (w *walk) spread(mark func(*node) *bool, passes func(edge) bool) {
	var work []int32
	reach := func(e edge) {
		to := &w.nodes[e.to]
		if set := mark(to); to.state == foreground && !to.later && !*set {
			*set = true
			work = append(work, e.to)
		}
	}
	for i := range w.nodes {
		if *mark(&w.nodes[i]) {
			work = append(work, int32(i))
		}
	}
	for len(work) > 0 {
		from := work[len(work)-1]
		work = work[:len(work)-1]
		at, _ := slices.BinarySearchFunc(w.edges, from, func(e edge, i int32) int { return cmp.Compare(e.from, i) })
		for ; at < len(w.edges) && w.edges[at].from == from; at++ {
			if e := w.edges[at]; w.usable(e) && passes(e) {
				reach(e)
			}
		}
	}
}

// action returns the result of the walk for a node.
func (w *walk) action(n *node) v1.Action {
	switch {
	case n.state == kept:
		return v1.Keep
	case n.state == orphaned:
		return v1.Orphan
	case n.later, n.state == stalled:
		return v1.Wait
	case n.state == gone:
		return v1.Delete
	case n.holds:
		return v1.Block
	case n.remains:
		return v1.Wait
	}
	return v1.Delete
}

// uncertain reports whether another order of the collector's reviews could have
// another result. While the collector asks webhooks and policies, a circle may break.
func (w *walk) uncertain(n *node) bool {
	return n.uncertain || n.remains && !n.certain || w.circle && n.leaving() && w.asks(w.names[n.kind])
}
