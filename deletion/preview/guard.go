package preview

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/deletion/subject"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// guardOf returns the guard's limit for the deletion of an object, and what was
// confirmed. Limit is 0 if no limit applies.
func (s *Service) guardOf(r *reader, h *head) (lifecycle.Guard, error) {
	m, err := object.ParseMeta(h.Body)
	if err != nil {
		return lifecycle.Guard{}, fmt.Errorf("read %s: %w", h.Key, err)
	}
	g := lifecycle.GuardOf(&m)
	if g.Held {
		return g, nil
	}
	annotations := map[string]string(nil)
	if h.Kind == object.Namespaces {
		annotations = m.Annotations
	} else if h.Namespace != "" {
		ns, err := r.Get(r.ctx, object.Key{Kind: object.Namespaces, Name: h.Namespace})
		if err != nil {
			return g, err
		}
		if ns != nil {
			nsMeta, err := object.ParseMeta(ns.Body)
			if err != nil {
				return g, fmt.Errorf("read %s: %w", ns.Key, err)
			}
			annotations = nsMeta.Annotations
		}
	}
	g.Limit = lifecycle.CascadeLimit(s.maxCascade.Load(), annotations)
	return g, nil
}

// going counts the objects that leave because of the walk's object, itself
// included, as the guard does.
func (w *walk) going() int64 {
	n := 1 + w.goingLeaves()
	for i := 1; i < len(w.nodes); i++ {
		if node := &w.nodes[i]; node.leaving() && !node.was && !node.byOther && w.names[node.kind] != object.Events {
			n++
		}
	}
	return n
}

// addGuard adds the guard's decision.
func (w *walk) addGuard(status *v1.DeletionPreviewStatus, h *head) error {
	if w.nodes[0].refused {
		return nil
	}
	g, err := w.s.guardOf(w.r, h)
	if err != nil || g.Limit == 0 && !g.Held || h.Deletion != 0 && !g.Held {
		return err
	}
	n := w.going()
	status.Guard = &v1.Guard{Limit: g.Allowed(), Deletes: n, Holds: n > g.Allowed() || w.full}
	return nil
}

// Held returns a warning for the client that deletes an object, if the guard will
// hold the deletion; otherwise it is empty. o is the object after the delete; in a
// dry run, as the delete would leave it.
func (s *Service) Held(ctx context.Context, o object.Object, options *metav1.DeleteOptions) (string, error) {
	m, err := object.ParseMeta(o.Body)
	if err != nil {
		return "", err
	}
	allowed := lifecycle.GuardOf(&m).Allowed()
	snapshot, err := s.store.Snapshot(ctx)
	if err != nil {
		return "", err
	}
	defer snapshot.Close()
	h, err := snapshot.GetByUID(ctx, o.UID)
	if err != nil || h == nil || h.Deleting && !h.Held() {
		return "", err // the collector has let it pass already
	}
	w := s.newWalk(newReader(ctx, snapshot))
	w.most = int(min(2*allowed+1000, int64(s.opts.Objects)))
	if h.Deletion != 0 {
		options = &metav1.DeleteOptions{}
	}
	if err := w.run(h, metav1.DeleteOptions{PropagationPolicy: options.PropagationPolicy}); err != nil {
		return "", err
	}
	if w.going() <= allowed && !w.full {
		return "", nil
	}
	ref := subject.Reference(s.kinds.Snapshot(), o.Key, "")
	return fmt.Sprintf("%s waits to be confirmed: more than %d objects would go; see: exeunt why %s", subject.Describe(ref), allowed, subject.Target(ref)), nil
}

// Cascade is what the guard says about a deletion that it holds.
type Cascade struct {
	lifecycle.Guard
	Going   int64 // objects that would go, the object itself included
	AtLeast bool  // there are more: counting stopped
}

// Guarded counts a held deletion again, in a snapshot; most bounds the objects
// that it follows.
func (s *Service) Guarded(ctx context.Context, snapshot *store.Snapshot, o *store.Stored, most int) (c Cascade, err error) {
	r := newReader(ctx, snapshot)
	if c.Guard, err = s.guardOf(r, o); err != nil {
		return c, err
	}
	w := s.newWalk(r)
	w.most = min(most, w.most)
	if err := w.run(o, metav1.DeleteOptions{}); err != nil {
		return c, err
	}
	c.Going, c.AtLeast = w.going(), w.full
	return c, nil
}
