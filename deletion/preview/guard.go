package preview

import (
	"context"
	"fmt"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mostReported bounds how many objects a report counts for a held deletion, because
// people repeat reports. A preview counts more.
const mostReported = 100_000

// guardOf returns the guard's limit for the deletion of an object, and what was
// confirmed. Limit is 0 if no limit applies.
func (s *Service) guardOf(r *reader, h *head) (lifecycle.Guard, error) {
	m, err := object.ParseMeta(h.body)
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
		ns, found, err := r.head(headByKey, object.Namespaces, "", h.Namespace)
		if err != nil {
			return g, err
		}
		if found {
			nsMeta, err := object.ParseMeta(ns.body)
			if err != nil {
				return g, fmt.Errorf("read %s: %w", ns.Key, err)
			}
			annotations = nsMeta.Annotations
		}
	}
	g.Limit = lifecycle.CascadeLimit(s.opts.MaxCascade, annotations)
	return g, nil
}

// going counts the objects that leave because of the walk's object, itself
// included, as the guard does.
func (w *walk) going() int64 {
	n := int64(1)
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
	if err != nil || g.Limit == 0 && !g.Held || h.deletion != 0 && !g.Held {
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
	r, err := s.open(ctx)
	if err != nil {
		return "", err
	}
	defer r.close()
	h, found, err := r.head(headByUID, string(o.UID))
	if err != nil || !found || h.deletion != 0 && h.finalizing&store.FinalizeConfirm == 0 {
		return "", err // the collector has let it pass already
	}
	w := s.newWalk(r)
	w.most = int(min(2*allowed+1000, int64(s.opts.Objects)))
	if h.deletion != 0 {
		options = &metav1.DeleteOptions{}
	}
	if err := w.run(h, metav1.DeleteOptions{PropagationPolicy: options.PropagationPolicy}); err != nil {
		return "", err
	}
	if w.going() <= allowed && !w.full {
		return "", nil
	}
	ref := s.reference(o.Key, "")
	return fmt.Sprintf("%s waits to be confirmed: more than %d objects would go; see: exeunt why %s", describe(ref), allowed, target(ref)), nil
}

// guarded returns the reason of an object that the guard holds. Such an object has
// no other reason.
func (t *reporter) guarded(h *head) (v1.Reason, error) {
	ref := t.s.reference(h.Key, "")
	g, err := t.s.guardOf(t.r, h)
	if err != nil {
		return v1.Reason{}, err
	}
	w := t.s.newWalk(t.r)
	w.most = min(mostReported, w.most)
	if err := w.run(*h, metav1.DeleteOptions{}); err != nil {
		return v1.Reason{}, err
	}
	n, least := w.going(), ""
	if w.full {
		least = "at least "
	}
	message := fmt.Sprintf("its deletion waits to be confirmed: %s%d objects would go, and %d may", least, n, g.Allowed())
	if g.Mistaken != "" {
		message += fmt.Sprintf("; the annotation is %q, which is not a number", g.Mistaken)
	}
	since := metav1.Unix(h.deletion, 0)
	confirm := command(ref, "annotate", "--overwrite", fmt.Sprintf("%s=%d", lifecycle.ConfirmCascade, n))
	if w.full {
		confirm = fmt.Sprintf("set the annotation %s to the number that a preview counts", lifecycle.ConfirmCascade)
	}
	return v1.Reason{
		Type: v1.ReasonGuard, Message: message, Since: &since,
		Resolve: "to see what would go: exeunt preview " + target(ref) + "; to confirm: " + confirm + "; to call it off: exeunt restore " + target(ref),
	}, nil
}
