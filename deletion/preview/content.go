package preview

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// container is a DELETING object that leaves when its content has left: a
// namespace, or a definition with the objects of its kind.
type container struct {
	node      int32
	namespace string // of a namespace
	kind      string // of a definition: the storage name of its objects
}

// containerOf returns the container of an object; false if the object is not a container.
func containerOf(h *head, i int32) (container, bool) {
	switch h.Kind {
	case object.Namespaces:
		return container{node: i, namespace: h.Name}, true
	case object.Definitions:
		storage, ok := kind.Defined(h.Body)
		return container{node: i, kind: storage}, ok
	}
	return container{}, false
}

// empty deletes the content of a container, wave by wave, as the collector does. A
// namespace is emptied also while it waits for dependents.
func (w *walk) empty(c container) error {
	reason := inNamespace
	if c.kind != "" {
		reason = inDefinition
	}
	phases, err := w.phases(c)
	if err != nil {
		return err
	}
	remains := false
	for _, kinds := range phases {
		if remains && reason == inNamespace {
			reason = behindOthers
		}
		var left []int32
		for _, kind := range kinds {
			found, err := w.emptyKind(c, kind, reason)
			if err != nil {
				return err
			}
			left = append(left, found...)
		}
		if w.later || w.full {
			continue
		}
		if err := w.drain(); err != nil {
			return err
		}
		w.settle()
		for _, i := range left {
			remains = remains || w.nodes[i].remains
		}
	}
	w.emptied(c, remains)
	return nil
}

// emptied updates the container's node after its content.
func (w *walk) emptied(c container, remains bool) {
	n := &w.nodes[c.node]
	n.stuck = remains
	if remains || w.later || n.state != emptying {
		return
	}
	n.state = gone
	if n.holds {
		n.state = held
		return
	}
	w.frontier = append(w.frontier, c.node)
}

// phases returns the kinds of the content, in the order of their deletion.
func (w *walk) phases(c container) ([][]string, error) {
	if c.kind != "" {
		return [][]string{{c.kind}}, nil
	}
	stored, err := w.r.Kinds(w.r.ctx, store.AllNamespaces)
	if err != nil {
		return nil, err
	}
	return gc.Waves(stored), nil
}

// emptyKind deletes the objects of a kind, and returns those that do not leave at
// once.
func (w *walk) emptyKind(c container, kind string, reason why) (left []int32, err error) {
	var namespace, name string
	for !w.full {
		selection := store.Selection{Kind: kind, Namespace: c.namespace, AfterNamespace: namespace, After: name, Limit: w.s.opts.Batch}
		if c.kind != "" {
			selection.Namespace = store.AllNamespaces
		}
		page, err := w.r.heads(w.r.Select(w.r.ctx, selection))
		if err != nil {
			return nil, err
		}
		for i := range page {
			at, err := w.deleteContained(page[i], reason)
			if err != nil {
				return nil, err
			}
			if at >= 0 && (w.nodes[at].state != gone || w.nodes[at].passes) {
				left = append(left, at)
			}
		}
		if len(page) < w.s.opts.Batch {
			return left, nil
		}
		namespace, name = page[len(page)-1].Namespace, page[len(page)-1].Name
	}
	return left, nil
}

// deleteContained deletes an object with its container.
func (w *walk) deleteContained(h *head, reason why) (int32, error) {
	if at, known := w.index[h.UID]; known && w.nodes[at].leaving() && !w.nodes[at].denied {
		return at, nil
	}
	m, err := object.ParseMeta(h.Body)
	if err != nil {
		return -1, fmt.Errorf("read %s: %w", h.Key, err)
	}
	if h.Deletion != 0 {
		n := w.deleting(h.Key, m, h.Body)
		n.was, n.why = true, reason
		return w.put(h, n), nil
	}
	if reason == behindOthers {
		return w.put(h, node{state: stalled, why: reason, grace: noGrace}), nil
	}
	background := metav1.DeletePropagationBackground
	deleted := w.collect
	if reason == inDefinition {
		deleted = w.fate // policies are not asked about these
	}
	n, err := deleted(h, m, metav1.DeleteOptions{PropagationPolicy: &background})
	if err != nil {
		return -1, err
	}
	n.why = reason
	return w.put(h, n), nil
}

// leaves are the objects that leave at once, that nothing depends on, and that have one owner.
// The walk meets each of them once and never asks for it again, so it keeps their number
// instead of nodes, and the ids of the requested page. Most objects of a large cascade are
// leaves: the memory of its preview does not grow with them.
type leaves struct {
	off    bool // objects may be met twice, so all need nodes
	total  int
	counts map[int32]int64 // by kind, an index of walk.names

	after int64   // the page begins behind this id
	limit int     // of the page; 0 means that none is requested
	ids   []int64 // the first ids of the page, and some more
}

// errTwice: a walk that has counted leaves may meet some of them again. It begins again, with
// a node for every object.
var errTwice = errors.New("object visited twice")

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
