package preview

import (
	"cmp"
	"slices"

	v1 "github.com/exeunt/exeunt/deletion/v1"
)

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
