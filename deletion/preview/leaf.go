package preview

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// leaves are the objects that leave at once, that nothing depends on, and that have one owner.
// The walk meets each of them once and never asks for it again, so it keeps their number
// instead of nodes, and the ids of the requested page. Most objects of a large cascade are
// leaves: the memory of its preview does not grow with them.
type leaves struct {
	off    bool // objects may be met twice, so all need nodes
	total  int
	counts map[int32]int64 // by kind, an index of walk.names

	after int64   // the page begins behind this id
	limit int     // of the page; 0: none is requested
	ids   []int64 // the first ids of the page, and some more
}

// errTwice: a walk that has counted leaves may meet some of them again. It begins again, with
// a node for every object.
var errTwice = errors.New("objects are met twice")

// leaf counts an object as a leaf if it is one.
func (w *walk) leaf(q *question, n node) bool {
	l := &w.leaves
	if l.off || w.later || q.Parent || len(q.meta.OwnerReferences) != 1 || n != (node{state: gone, grace: noGrace}) {
		return false
	}
	owner := w.find(q.meta.OwnerReferences[0].UID)
	if owner == nil || w.find(q.UID) != nil {
		return false
	}
	if w.isFull() {
		return true
	}
	owner.shed = true
	l.total++
	if l.counts == nil {
		l.counts = map[int32]int64{}
	}
	l.counts[w.name(q.Kind)]++
	if q.ID > l.after && l.limit > 0 {
		l.ids = append(l.ids, q.ID)
		if len(l.ids) >= 2*l.limit {
			l.cut()
		}
	}
	return true
}

// cut keeps the ids of the page.
func (l *leaves) cut() {
	slices.Sort(l.ids)
	l.ids = l.ids[:min(l.limit, len(l.ids))]
}

// goingLeaves counts the leaves for the guard, which does not count Events.
func (w *walk) goingLeaves() int64 {
	n := int64(w.leaves.total)
	if at, known := w.nameIndex[object.Events]; known {
		n -= w.leaves.counts[at]
	}
	return n
}

// recall makes nodes of the leaves that may be on the page.
func (w *walk) recall() error {
	w.leaves.cut()
	for ids := range slices.Chunk(w.leaves.ids, w.s.opts.Batch) {
		heads, err := w.r.heads(w.r.GetByIDs(w.r.ctx, ids))
		if err != nil {
			return err
		}
		for _, h := range heads {
			w.index[h.UID] = int32(len(w.nodes))
			w.nodes = append(w.nodes, node{state: gone, grace: noGrace}.of(w, h))
		}
	}
	return nil
}

// head is an object in the snapshot.
type head = store.Stored

// reader reads one snapshot of the database.
type reader struct {
	*store.Reader
	ctx  context.Context
	peak int // the most rows in memory at once, for tests
}

func newReader(ctx context.Context, s *store.Snapshot) *reader {
	return &reader{Reader: &s.Reader, ctx: ctx}
}

// heads notes how many objects a read returned.
func (r *reader) heads(found []*head, err error) ([]*head, error) {
	r.peak = max(r.peak, len(found))
	return found, err
}

// dependents is heads for dependents.
func (r *reader) dependents(found []*store.Dependent, err error) ([]*store.Dependent, error) {
	r.peak = max(r.peak, len(found))
	return found, err
}

// owners reads some owners.
func (r *reader) owners(uids []types.UID) (map[types.UID]gc.Owner, error) {
	return gc.Owners(r.ctx, r.Reader, slices.Compact(slices.Sorted(slices.Values(uids))))
}
