package preview

import (
	"cmp"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"slices"
)

// settle finds out what remains, as far as the walk has come: what holds
// itself, and upwards from there every owner in the foreground that is blocked
// by what remains.
//
// Owners that wait for each other in a circle do not remain for that: the
// collector breaks the circle, and so does going up from what holds itself.
//
// The collector drops a reference to an owner that waits when it finds another
// owner that is solid, even if that one leaves a moment later. So of two owners
// that both leave, the first may not be blocked after all. What remains for
// such a reference only is not sure, and neither is what a circle is waiting
// for besides itself, since where a circle is broken is anybody's guess.
func (w *walk) settle() {
	for i := range w.nodes {
		n := &w.nodes[i]
		own := !n.later && n.state != gone && n.leaving() && (n.holds || n.stuck || n.state == stalled)
		n.remains, n.sure, n.blocked = own, own && !n.shaky, false
	}
	slices.SortFunc(w.edges, func(a, b edge) int { return cmp.Compare(a.from, b.from) })
	w.spread(func(n *node) *bool { return &n.remains }, func(edge) bool { return true })
	for i := range w.edges {
		if e := w.edges[i]; w.nodes[e.from].remains && w.usable(e) {
			w.nodes[e.to].blocked = true
		}
	}
	w.spread(func(n *node) *bool { return &n.sure }, func(e edge) bool {
		from := &w.nodes[e.from]
		return !w.circle && !from.shaky && (from.was || !from.several)
	})
}

// usable says whether an edge holds its owner: those of a dependent that is
// kept have been dropped.
func (w *walk) usable(e edge) bool {
	n := &w.nodes[e.from]
	return n.leaving() && !n.later
}

// spread sets a mark on every owner that is reached by edges from what has it.
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

// action is what the walk came to for an object.
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

// uncertain says whether another order of the collector's work would have led
// to something else.
func (w *walk) uncertain(n *node) bool {
	return n.shaky || n.remains && !n.sure
}
