package preview

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// state is what a walk has found out about an object. It only moves forward:
// what was kept may be found to leave when another of its owners does, and
// nothing that leaves comes back. That is why the order in which a walk comes
// to things does not matter, and why it can go breadth first, a batch of owners
// at a time, while the collector may go as it likes.
type state uint8

const (
	kept       state = iota + 1 // stays: another owner keeps it
	orphaned                    // stays: an owner lets go of it
	gone                        // leaves without waiting for its dependents
	foreground                  // DELETING: leaves when no dependent blocks it
	orphaning                   // DELETING: leaves when it has let go of its dependents
	held                        // DELETING until others act; keeps its dependents meanwhile
	emptying                    // DELETING until its content has left; the same
	stalled                     // to leave with its namespace, after others there
)

// node is an object that a deletion touches. There can be a million of them:
// what can be read again is not kept.
type node struct {
	uid   types.UID
	id    int64
	kind  int32 // index of walk.names
	state state

	inside   bool  // lives in a namespace
	holds    bool  // others must act before it can leave: finalizers, grace
	stuck    bool  // a container whose content does not leave
	passes   bool  // sends its dependents on their way with its grace period, whatever holds it then
	grace    int32 // what it passes on, in seconds; noGrace: nothing
	finished bool  // in the foreground, and nothing held it: gone by now
	misnamed bool  // a dependent names it by a kind that is not served: kept while it is there
	was      bool  // DELETING already
	anyway   bool  // leaves by another deletion, that was there before
	why      why   // if it leaves because of the container it is in
	later    bool  // leaves only after something that remains has left
	several  bool  // had several owners that are leaving
	shaky    bool  // the order of the collector's work decides about it

	// Set by settle.
	blocked bool // in the foreground, and a dependent remains that blocks it
	remains bool // DELETING, and still there in the end
	sure    bool // remains whatever the order
}

// noGrace is the grace of what passes none on.
const noGrace = -1

// why is what a container has to do with it that an object leaves.
type why uint8

const (
	byOwner      why = iota // nothing
	inNamespace             // the namespace is emptied
	inDefinition            // the definition of its kind is
	behindOthers            // the namespace is, when what leaves it first is gone
)

func (n *node) leaving() bool { return n.state >= gone }

// edge says that a dependent blocks an owner.
type edge struct{ from, to int32 } // dependent, owner

// walk follows a deletion through the owners that leave and the containers
// that are emptied.
//
// There are two passes. The first is what happens now. In the second, what the
// first left DELETING is taken for gone, and what would leave then is noted as
// waiting: so a preview shows the whole closure, with who holds it up.
type walk struct {
	s     *Service
	r     *reader
	now   time.Time
	kinds *kind.Snapshot

	nodes      []node // the first is the object itself
	index      map[types.UID]int32
	names      []string // storage names of kinds
	nameIndex  map[string]int32
	edges      []edge
	frontier   []int32 // owners whose dependents have yet to be judged
	containers []container

	later  bool // the second pass
	waits  bool // something leaves in the foreground, or passes its grace period on
	circle bool // the object is a dependent of what depends on it
	full   bool // there is more than may be followed
	most   int  // how many may be
}

func (s *Service) newWalk(r *reader) *walk {
	return &walk{
		s: s, r: r, now: s.opts.Now(), most: s.opts.Objects, kinds: s.kinds.Snapshot(),
		index: map[types.UID]int32{}, nameIndex: map[string]int32{},
	}
}

// run follows the deletion of an object to its end.
func (w *walk) run(h head, options metav1.DeleteOptions) error {
	m, err := object.ParseMeta(h.body)
	if err != nil {
		return fmt.Errorf("read %s: %w", h.Key, err)
	}
	if lifecycle.GuardOf(&m).Held { // what follows when it is confirmed
		lifecycle.LetPass(&m)
		if h.body, err = object.WithMeta(h.body, m); err != nil {
			return fmt.Errorf("read %s: %w", h.Key, err)
		}
	}
	n, err := w.fate(&h, m, options)
	if err != nil {
		return err
	}
	w.put(&h, n)
	if err := w.drainAll(); err != nil {
		return err
	}
	w.settle()
	for w.finish() {
		if err := w.drainAll(); err != nil {
			return err
		}
		w.settle()
	}
	w.later = true
	for i := range w.nodes {
		if n := &w.nodes[i]; n.state == held || n.state == emptying || n.state == stalled || n.waitsMisnamed() {
			w.frontier = append(w.frontier, int32(i))
		}
	}
	return w.drainAll()
}

// finish lets owners in the foreground go that nothing holds, where that has
// consequences: a dependent that names its owner by a kind that is not served is
// kept while an object has the owner's uid, and follows it then.
func (w *walk) finish() (found bool) {
	for i := range w.nodes {
		if n := &w.nodes[i]; n.waitsMisnamed() && !n.remains && !n.finished {
			n.finished, found = true, true
			w.frontier = append(w.frontier, int32(i))
		}
	}
	return found
}

func (n *node) waitsMisnamed() bool { return n.state == foreground && n.misnamed && !n.later }

// drainAll judges and empties until nothing new leaves.
func (w *walk) drainAll() error {
	for {
		if err := w.drain(); err != nil {
			return err
		}
		if len(w.containers) == 0 || w.full {
			return nil
		}
		c := w.containers[0]
		w.containers = w.containers[1:]
		if err := w.empty(c); err != nil {
			return err
		}
	}
}

// put notes what was found out about an object, and that its dependents are to
// be judged if that concerns them.
func (w *walk) put(h *head, n node) int32 {
	i, known := w.index[h.uid]
	if !known {
		if len(w.nodes) >= w.most {
			w.full = true
			return -1
		}
		i = int32(len(w.nodes))
		w.nodes = append(w.nodes, node{})
		w.index[h.uid] = i
	}
	n.uid, n.id, n.kind, n.inside = h.uid, h.id, w.name(h.Kind), h.Namespace != ""
	n.later = w.later && n.leaving()
	w.nodes[i] = n
	switch n.state {
	case foreground, orphaning, emptying:
		if c, ok := containerOf(h, i); ok {
			w.containers = append(w.containers, c)
		}
	}
	switch {
	case n.state == gone, n.state == orphaning, n.state == foreground, n.passes, n.leaving() && w.later:
		w.frontier = append(w.frontier, i)
	}
	w.waits = w.waits || n.state == foreground || n.grace != noGrace
	return i
}

func (w *walk) name(kind string) int32 {
	i, known := w.nameIndex[kind]
	if !known {
		i = int32(len(w.names))
		w.names = append(w.names, kind)
		w.nameIndex[kind] = i
	}
	return i
}

// drain judges the dependents of the frontier, a batch of owners at a time.
func (w *walk) drain() error {
	for len(w.frontier) > 0 && !w.full {
		n := min(len(w.frontier), w.s.opts.Batch)
		uids := make([]types.UID, 0, n)
		for _, i := range w.frontier[:n] {
			uids = append(uids, w.nodes[i].uid)
		}
		w.frontier = w.frontier[n:]
		if err := w.expand(uids); err != nil {
			return err
		}
	}
	return nil
}

// expand judges the dependents of some owners. An owner with more of them than
// fit into a batch is gone through alone.
func (w *walk) expand(owners []types.UID) error {
	batch := w.s.opts.Batch
	for len(owners) > 0 && !w.full {
		rows, err := w.r.dependentsOfMany(owners, batch)
		if err != nil {
			return err
		}
		if err := w.judge(rows); err != nil {
			return err
		}
		if len(rows) < batch {
			return nil
		}
		last := rows[len(rows)-1]
		seen := map[types.UID]bool{}
		for i := range rows {
			seen[rows[i].owner] = true
		}
		rows = nil // the next page takes its place
		if err := w.expandOne(last.owner, last.id); err != nil {
			return err
		}
		owners = slices.DeleteFunc(slices.Clone(owners), func(uid types.UID) bool { return seen[uid] })
	}
	return nil
}

func (w *walk) expandOne(owner types.UID, after int64) error {
	batch := w.s.opts.Batch
	for !w.full {
		rows, err := w.r.dependents(dependentsOfOne, string(owner), after, batch)
		if err != nil {
			return err
		}
		if err := w.judge(rows); err != nil {
			return err
		}
		if len(rows) < batch {
			return nil
		}
		after = rows[len(rows)-1].id
	}
	return nil
}

// judge decides about dependents of owners that leave, and notes which of them
// block.
func (w *walk) judge(rows []dependent) error {
	var open []question
	asked := map[types.UID]bool{}
	for i := range rows {
		d := &rows[i]
		if n := w.find(d.uid); asked[d.uid] || n != nil && n.leaving() {
			continue
		}
		asked[d.uid] = true
		m, err := object.ParseMeta(d.body)
		if err != nil {
			return fmt.Errorf("read %s: %w", d.Key, err)
		}
		if d.deletion != 0 {
			n := w.deleting(d.Key, m, d.body)
			n.was = true
			w.put(&d.head, n)
			continue
		}
		open = append(open, question{&d.head, m})
	}
	if err := w.decide(open); err != nil {
		return err
	}
	if !w.later && w.waits {
		w.connect(rows)
	}
	return nil
}

// connect notes who blocks whom.
func (w *walk) connect(rows []dependent) {
	for i := range rows {
		d := &rows[i]
		from, known := w.index[d.uid]
		to := w.index[d.owner]
		if !known || !d.blocking || w.nodes[to].state != foreground || w.nodes[from].state == gone || !w.ofKind(&w.nodes[to], d.named) {
			continue
		}
		w.circle = w.circle || from == 0
		if d.Namespace == "" && w.nodes[to].inside {
			continue // it cannot be resolved, and would block for ever
		}
		w.edges = append(w.edges, edge{from, to})
	}
}

// ofKind says whether a node has the kind that a reference to it names.
func (w *walk) ofKind(n *node, r gc.Reference) bool {
	return gc.Identify(w.kinds, r, gc.Owner{Exists: true, Kind: w.names[n.kind], Name: r.Name}).Same
}

func (w *walk) find(uid types.UID) *node {
	if i, ok := w.index[uid]; ok {
		return &w.nodes[i]
	}
	return nil
}

// standing is what an owner is to an object in a namespace at this point of the
// walk. known is what the database says.
func (w *walk) standing(namespace string, r *metav1.OwnerReference, known map[types.UID]gc.Owner) gc.Standing {
	o := known[r.UID]
	n := w.find(r.UID)
	switch {
	case n == nil:
	case n.state == gone, n.finished, n.state != orphaning && n.leaving() && w.later:
		o = gc.Owner{Removed: true, WasInside: n.inside}
	case n.passes:
		o.Leaving = true
	case n.state == foreground:
		o.Foreground = true
	}
	standing := gc.Classify(namespace, gc.Identify(w.kinds, gc.ReferenceOf(r), o), o)
	if n != nil && o.Exists && standing == gc.Unknown {
		n.misnamed = true
	}
	return standing
}
