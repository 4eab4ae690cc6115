package preview

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/deletion"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// state is the result of a walk for an object. It only moves forward: a kept
// object may leave when another of its owners leaves, and a leaving object never
// stays again. So the order of the walk does not matter: it goes breadth first, a
// batch of owners at a time, while the collector may use another order.
type state uint8

const (
	kept       state = iota + 1 // stays: another owner keeps it
	orphaned                    // stays: an owner orphans it
	gone                        // leaves without waiting for its dependents
	foreground                  // DELETING: leaves when no dependent blocks it
	orphaning                   // DELETING: leaves when it has orphaned its dependents
	held                        // DELETING, or denied, until another client acts; keeps its dependents meanwhile
	emptying                    // DELETING until its content has left; keeps its dependents meanwhile
	stalled                     // leaves with its namespace, after an earlier wave
)

// node is an object that a deletion touches. There can be a million nodes, so they
// hold nothing that can be read again.
type node struct {
	uid   types.UID
	id    int64
	kind  int32 // index of walk.names
	state state

	inside    bool  // is in a namespace
	holds     bool  // another client must act before it can leave: finalizers, grace period
	stuck     bool  // a container whose content does not leave
	passes    bool  // deletes its dependents with its grace period, even if something holds it
	asks      bool  // passes, and a policy refuses the deletion of a dependent: it waits for that
	grace     int32 // the grace period that it passes on, in seconds; noGrace: none
	finished  bool  // foreground, and nothing holds it: gone by now
	misnamed  bool  // a dependent names it by an unserved kind, which keeps the dependent
	misnames  bool  // names a leaving owner by an unserved kind
	orphans   bool  // denied, and will orphan its dependents
	was       bool  // was DELETING before this deletion
	byOther   bool  // leaves by an earlier deletion
	why       why   // the container that it leaves with, if any
	later     bool  // leaves only after another object that remains
	several   bool  // several of its owners leave
	refused   bool  // its kind forbids its deletion
	denied    bool  // held: a policy refuses its deletion, and it stays ACTIVE meanwhile
	uncertain bool  // the result depends on the order of the collector's reviews
	shed      bool  // some of its dependents are leaves

	// Set by settle.
	blocked bool // foreground, and a remaining dependent blocks it
	remains bool // DELETING, and still exists in the end
	certain bool // remains in every order
}

// noGrace: the node passes no grace period on.
const noGrace = -1

// why is the container that an object leaves with.
type why uint8

const (
	byOwner      why = iota // none
	inNamespace             // its namespace is emptied
	inDefinition            // the definition of its kind is emptied
	behindOthers            // its namespace is emptied, and an earlier wave remains
)

func (n *node) leaving() bool { return n.state >= gone }

// edge says that a dependent blocks an owner.
type edge struct{ from, to int32 } // dependent, owner

// walk follows a deletion through the owners that leave and the containers that
// are emptied.
//
// There are two passes. The first finds what happens now. The second treats what
// is left DELETING as gone, and marks what would leave then as later. So a preview
// shows the whole cascade, and what holds it.
type walk struct {
	s     *Service
	r     *reader
	now   time.Time
	kinds *kind.Snapshot

	denied error                      // the policies' refusal of the delete of the object itself
	judges func(kind string) []string // kind.Client.Judges
	// collected returns the policies' refusal of a delete by the collector. Nil if there are none.
	collected func(ctx context.Context, o object.Object, options metav1.DeleteOptions, emptying bool) error

	nodes      []node // the first is the object itself
	index      map[types.UID]int32
	names      []string // storage names of kinds
	nameIndex  map[string]int32
	edges      []edge
	frontier   []int32 // owners whose dependents are not judged yet
	containers []container
	leaves     leaves

	asking map[types.UID]bool // owners that an earlier try of the walk found to ask

	later    bool // in the second pass
	waits    bool // a node leaves in the foreground, or passes its grace period on
	circle   bool // the object depends on one of its dependents
	misnames bool // a dependent names a leaving owner by an unserved kind
	full     bool // the cascade has more than most objects
	twice    bool // leaves may be met again
	most     int  // bounds the nodes
}

func (s *Service) newWalk(r *reader) *walk {
	return &walk{
		s: s, r: r, now: s.opts.Now(), most: s.opts.Objects, kinds: s.kinds.Snapshot(),
		index: map[types.UID]int32{}, nameIndex: map[string]int32{}, asking: map[types.UID]bool{},
	}
}

func (w *walk) reference(key object.Key, uid types.UID) v1.ObjectReference {
	return deletion.Reference(w.kinds, key, uid)
}

// run follows the deletion of an object to its end.
func (w *walk) run(h *head, options metav1.DeleteOptions) error {
	err := w.follow(h, options)
	for errors.Is(err, errTwice) {
		again := w.s.newWalk(w.r)
		again.most, again.leaves, again.denied, again.collected = w.most, leaves{off: true}, w.denied, w.collected
		again.judges, again.asking = w.judges, w.asking
		*w = *again
		err = w.follow(h, options)
	}
	return err
}

func (w *walk) follow(h *head, options metav1.DeleteOptions) error {
	m, err := object.ParseMeta(h.Body)
	if err != nil {
		return fmt.Errorf("read %s: %w", h.Key, err)
	}
	if lifecycle.GuardOf(&m).Held { // preview it as confirmed
		lifecycle.LetPass(&m)
		confirmed := *h
		if confirmed.Body, err = object.WithMeta(h.Body, m); err != nil {
			return fmt.Errorf("read %s: %w", h.Key, err)
		}
		h = &confirmed
	}
	n, err := w.fate(h, m, options)
	if err != nil {
		return err
	}
	w.put(h, n)
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
			if n.shed {
				return errTwice
			}
			w.frontier = append(w.frontier, int32(i))
		}
	}
	return w.drainAll()
}

// finish marks foreground owners that nothing holds as finished, if a dependent
// names them by an unserved kind: such a dependent is kept while an object has the
// owner's uid, and leaves after it.
func (w *walk) finish() (found bool) {
	for i := range w.nodes {
		if n := &w.nodes[i]; n.waitsMisnamed() && !n.remains && !n.finished {
			n.finished, found = true, true
			w.twice = w.twice || n.shed
			w.frontier = append(w.frontier, int32(i))
		}
	}
	return found
}

func (n *node) waitsMisnamed() bool { return n.state == foreground && n.misnamed && !n.later }

// drainAll judges dependents and empties containers until nothing new leaves.
func (w *walk) drainAll() error {
	for {
		if w.twice {
			return errTwice
		}
		if err := w.drain(); err != nil {
			return err
		}
		if len(w.containers) > 0 && w.leaves.total > 0 {
			return errTwice
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

// put stores the node of an object, and adds it to the frontier if its state
// affects its dependents.
func (w *walk) put(h *head, n node) int32 {
	i, known := w.index[h.UID]
	if !known {
		if w.isFull() {
			return -1
		}
		i = int32(len(w.nodes))
		w.nodes = append(w.nodes, node{})
		w.index[h.UID] = i
	}
	n = n.of(w, h)
	n.later = w.later && n.leaving()
	w.nodes[i] = n
	if w.asking[h.UID] {
		w.nodes[i].ask()
	}
	switch n.state {
	case foreground, orphaning, emptying:
		if c, ok := containerOf(h, i); ok {
			w.containers = append(w.containers, c)
			w.leaves.off = true // an object of a namespace may have an owner too
		}
	}
	switch {
	case !h.Parent:
	case n.state == gone, n.state == orphaning, n.state == foreground, n.passes, n.leaving() && w.later:
		w.frontier = append(w.frontier, i)
	}
	w.waits = w.waits || n.state == foreground || n.grace != noGrace || n.passes
	return i
}

// isFull reports whether the cascade has more objects than the walk follows.
func (w *walk) isFull() bool {
	w.full = w.full || len(w.nodes)+w.leaves.total >= w.most
	return w.full
}

// of returns the node as that of an object.
func (n node) of(w *walk, h *head) node {
	n.uid, n.id, n.kind, n.inside = h.UID, h.ID, w.name(h.Kind), h.Namespace != ""
	return n
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

// expand judges the dependents of some owners. An owner with more dependents than
// a batch holds is read alone.
func (w *walk) expand(owners []types.UID) error {
	batch := w.s.opts.Batch
	for len(owners) > 0 && !w.full {
		rows, err := w.r.dependents(w.r.DependentsOf(w.r.ctx, owners, 0, batch))
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
			seen[rows[i].Owner] = true
		}
		if err := w.expandOne(last.Owner, last.ID); err != nil {
			return err
		}
		owners = slices.DeleteFunc(slices.Clone(owners), func(uid types.UID) bool { return seen[uid] })
	}
	return nil
}

// expandOne judges the dependents of an owner behind an id. It reads the next batch while
// it judges one.
func (w *walk) expandOne(owner types.UID, after int64) error {
	batch := w.s.opts.Batch
	type page struct {
		rows []*store.Dependent
		err  error

		panicked any // by the read: it would end the server, but for a request it is answered
	}
	read := func(after int64) <-chan page {
		next := make(chan page, 1)
		go func() {
			var p page
			defer func() {
				p.panicked = recover()
				next <- p
			}()
			p.rows, p.err = w.r.DependentsOf(w.r.ctx, []types.UID{owner}, after, batch)
		}()
		return next
	}
	for next := read(after); next != nil && !w.full; {
		p := <-next
		if p.panicked != nil {
			panic(p.panicked)
		}
		rows, err := w.r.dependents(p.rows, p.err)
		if err != nil {
			return err
		}
		if next = nil; len(rows) == batch {
			next = read(rows[batch-1].ID)
		}
		if err := w.judge(rows); err != nil {
			if next != nil {
				<-next // the snapshot is closed after the last read
			}
			return err
		}
		if w.full && next != nil {
			<-next
		}
	}
	return nil
}

// judge decides about dependents of leaving owners, and records which of them
// block.
func (w *walk) judge(rows []*store.Dependent) error {
	var open []question
	asked := map[types.UID]bool{}
	for i := range rows {
		d := rows[i]
		if n := w.find(d.UID); asked[d.UID] || n != nil && n.leaving() {
			continue
		}
		asked[d.UID] = true
		m, err := object.ParseMeta(d.Body)
		if err != nil {
			return fmt.Errorf("read %s: %w", d.Key, err)
		}
		if d.Deletion != 0 {
			n := w.deleting(d.Key, m, d.Body)
			n.was = true
			w.put(&d.Stored, n)
			continue
		}
		open = append(open, question{&d.Stored, m})
	}
	if err := w.decide(open); err != nil {
		return err
	}
	if w.later || !w.waits {
		return nil
	}
	return w.connect(rows)
}

// connect adds the edges of blocking dependents. One whose deletion with its container is denied, and which another owner
// keeps, loses its reference instead.
func (w *walk) connect(rows []*store.Dependent) error {
	for i := range rows {
		d := rows[i]
		from, known := w.index[d.UID]
		to := w.index[d.Owner]
		if known && w.nodes[from].denied && w.nodes[from].why != byOwner {
			if collected, err := w.collects(&d.Stored); err != nil {
				return err
			} else if !collected {
				continue
			}
		}
		if known && w.nodes[from].denied && !w.nodes[from].misnames && w.nodes[to].passes {
			if w.nodes[to].ask() && w.misnames {
				w.asking[d.Owner], w.twice = true, true
			}
		}
		if !known || !d.Blocking || w.nodes[to].state != foreground || w.nodes[from].state == gone && !w.nodes[from].passes || !w.ofKind(&w.nodes[to], gc.Reference{Group: d.As.Group, Kind: d.As.Kind}) {
			continue
		}
		w.circle = w.circle || from == 0
		w.edges = append(w.edges, edge{from, to})
	}
	return nil
}

// ask lets an owner wait until policies admit the deletion of a dependent. It reports whether the walk took it for gone.
func (n *node) ask() (wasGone bool) {
	if wasGone = n.state == gone; wasGone {
		n.state = held
	}
	n.asks = true
	return wasGone
}

// ofKind reports whether a node has the kind that a reference names.
func (w *walk) ofKind(n *node, r gc.Reference) bool {
	return gc.Identify(w.kinds, r, gc.Owner{Exists: true, Kind: w.names[n.kind], Name: r.Name}).Same
}

func (w *walk) find(uid types.UID) *node {
	if i, ok := w.index[uid]; ok {
		return &w.nodes[i]
	}
	return nil
}

// standing classifies a reference of an object in a namespace, at this point of
// the walk. known is the owners in the database.
func (w *walk) standing(namespace string, r *metav1.OwnerReference, known map[types.UID]gc.Owner) gc.Standing {
	o := known[r.UID]
	n := w.find(r.UID)
	switch {
	case n == nil:
	case n.state == gone, n.finished, n.state != orphaning && !n.orphans && n.leaving() && w.later:
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
