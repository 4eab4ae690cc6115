package preview

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
