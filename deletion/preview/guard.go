package preview

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/deletion"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// guardOf returns the guard's limit for the deletion of an object, and what was
// confirmed. Unlimited: at most the limits of namespaces apply.
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
	g.Unlimited = g.Limit == 0 && !slices.Contains(m.Finalizers, lifecycle.ConfirmCascade)
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
func (w *walk) addGuard(status *v1.DeletionPreviewStatus, h *head, options metav1.DeleteOptions) error {
	if w.nodes[0].refused {
		return nil
	}
	g, err := w.s.guardOf(w.r, h)
	if err != nil || h.Deletion != 0 && !g.Held || g.Unlimited && h.Namespace != "" {
		return err
	}
	n := w.going()
	holds := !g.Unlimited && (n > g.Allowed() || w.full)
	if !g.Unlimited {
		status.Guard = &v1.Guard{Limit: g.Allowed(), Deletes: n, Holds: holds}
	}
	if holds || h.Namespace != "" {
		return nil
	}
	excess, err := w.exceeds(h, g, options)
	if excess.Over {
		status.Guard = &v1.Guard{Limit: excess.Limit, Namespace: excess.Namespace, Deletes: n, Holds: true}
	}
	return err
}

// exceeds asks the guard about the deletion of an object with these options.
func (w *walk) exceeds(h *head, g lifecycle.Guard, options metav1.DeleteOptions) (gc.Excess, error) {
	m, err := object.ParseMeta(h.Body)
	if err != nil {
		return gc.Excess{}, err
	}
	root, d := *h, lifecycle.Deletion{Meta: m, Options: options}
	if k, ok := w.kinds.Stored(h.Kind); ok {
		d.Rules = k.Rules
	}
	if !g.Held && d.Policy() == metav1.DeletePropagationOrphan {
		root.Finalizing |= store.FinalizeOrphan
	}
	return gc.Exceeds(w.r.ctx, w.r.Reader, w.kinds, &root, g)
}

// Held returns a warning for the client that deletes an object, if the guard will
// hold the deletion; otherwise it is empty. o is the object after the delete; in a
// dry run, as the delete would leave it.
func (s *Service) Held(ctx context.Context, o object.Object, options *metav1.DeleteOptions) (string, error) {
	m, err := object.ParseMeta(o.Body)
	if err != nil {
		return "", err
	}
	snapshot, err := s.store.Snapshot(ctx)
	if err != nil {
		return "", err
	}
	defer snapshot.Close()
	h, err := snapshot.GetByUID(ctx, o.UID)
	if err != nil || h == nil || h.Deleting && !h.Held() {
		return "", err // the collector has let it pass already
	}
	g := lifecycle.GuardOf(&m)
	g.Held = h.Deleting
	excess, err := s.newWalk(newReader(ctx, snapshot)).exceeds(h, g, *options)
	if err != nil || !excess.Over {
		return "", err
	}
	ref := deletion.Reference(s.kinds.Snapshot(), o.Key, "")
	return fmt.Sprintf("%s waits to be confirmed: more than %d objects%s would go; see: exeunt why %s",
		deletion.Describe(ref), excess.Limit, excess.Where(), deletion.Target(ref)), nil
}

// Cascade is what the guard says about a deletion that it holds.
type Cascade struct {
	lifecycle.Guard
	Excess  gc.Excess // the limit that holds it
	Going   int64     // objects that would go, the object itself included
	AtLeast bool      // there are more: counting stopped
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
	c.Excess, err = w.exceeds(o, c.Guard, metav1.DeleteOptions{})
	return c, err
}
