package preview

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
)

// container is a DELETING object that leaves when its content has left: a
// namespace, or a definition with the objects of its kind.
type container struct {
	node      int32
	namespace string // of a namespace
	kind      string // of a definition: what its objects are stored under
}

// containerOf says whether an object is one.
func containerOf(h *head, i int32) (container, bool) {
	switch h.Kind {
	case namespaces:
		return container{node: i, namespace: h.Name}, true
	case definitions:
		storage, ok := definedKind(h.body)
		return container{node: i, kind: storage}, ok
	}
	return container{}, false
}

// definedKind is what the objects of a definition are stored under.
func definedKind(body []byte) (string, bool) {
	var crd struct {
		Spec struct {
			Group string `json:"group"`
			Names struct {
				Plural string `json:"plural"`
			} `json:"names"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(body, &crd); err != nil || crd.Spec.Names.Plural == "" {
		return "", false
	}
	return kind.StorageName(crd.Spec.Group, crd.Spec.Names.Plural), true
}

// empty sends the content of a container on its way: wave by wave, as the
// collector does. That a namespace also waits for dependents holds up nothing.
func (w *walk) empty(c container) error {
	because := inNamespace
	if c.kind != "" {
		because = inDefinition
	}
	phases, err := w.phases(c)
	if err != nil {
		return err
	}
	remains := false
	for _, kinds := range phases {
		if remains && because == inNamespace {
			because = behindOthers
		}
		var left []int32
		for _, kind := range kinds {
			found, err := w.emptyKind(c, kind, because)
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

// emptied draws the conclusion for the container.
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

// phases are the kinds of the content, in the order in which they leave.
func (w *walk) phases(c container) ([][]string, error) {
	if c.kind != "" {
		return [][]string{{c.kind}}, nil
	}
	stored, err := w.r.kinds()
	if err != nil {
		return nil, err
	}
	return gc.Waves(stored), nil
}

// emptyKind sends what is there of a kind on its way, and returns what does
// not leave at once.
func (w *walk) emptyKind(c container, kind string, because why) (left []int32, err error) {
	var namespace, name string
	for !w.full {
		var page []head
		if c.kind != "" {
			page, err = w.r.heads(contentOfAll, kind, namespace, name, w.s.opts.Batch)
		} else {
			page, err = w.r.heads(contentOf, kind, c.namespace, name, w.s.opts.Batch)
		}
		if err != nil {
			return nil, err
		}
		for i := range page {
			at, err := w.dismiss(&page[i], because)
			if err != nil {
				return nil, err
			}
			if at >= 0 && w.nodes[at].state != gone {
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

// dismiss deletes an object because of the container it is in.
func (w *walk) dismiss(h *head, because why) (int32, error) {
	if at, known := w.index[h.uid]; known && w.nodes[at].leaving() {
		return at, nil
	}
	m, err := object.ParseMeta(h.body)
	if err != nil {
		return -1, fmt.Errorf("read %s: %w", h.Key, err)
	}
	if h.deletion != 0 {
		n := w.deleting(h.Key, m, h.body)
		n.was, n.why = true, because
		return w.put(h, n), nil
	}
	if because == behindOthers {
		return w.put(h, node{state: stalled, why: because, grace: noGrace}), nil
	}
	background := metav1.DeletePropagationBackground
	n, err := w.fate(h, m, metav1.DeleteOptions{PropagationPolicy: &background})
	if err != nil {
		return -1, err
	}
	n.why = because
	return w.put(h, n), nil
}
