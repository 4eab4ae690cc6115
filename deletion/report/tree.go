package report

import (
	"fmt"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/deletion"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/graph"
)

// orphaning: the orphan finalizer waits for a controller to see the deletion,
// and then for the collector.
func (t *reporter) orphaning(h *store.Stored, _ metav1.ObjectMeta, _ int) ([]v1.Reason, error) {
	if h.Finalizing&store.FinalizeOrphan == 0 {
		return nil, nil
	}
	n, err := graph.CountDependents(t.ctx, t.r, h.UID, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	reason := v1.Reason{Type: v1.ReasonOrphaning, Message: fmt.Sprintf("%d %s to orphan", n, deletion.Plural(n, "dependent"))}
	deadline := gc.OrphanDeadline(h.Deletion, t.s.opts.OrphanWait)
	if seen, want, behind := gc.Unseen(t.kinds, h.Kind, h.Body); behind && deadline.After(t.now) {
		reason.Message += fmt.Sprintf("; its controller has seen generation %d, and should see %d first, so as not to adopt them again", seen, want)
		reason.Resolve = fmt.Sprintf("nothing: in %v, at %s, the collector stops waiting for the controller (--orphan-observed-generation-timeout)",
			deadline.Sub(t.now).Round(time.Second), deadline.UTC().Format(time.RFC3339))
	}
	return []v1.Reason{reason}, nil
}

// blocking: the foreground finalizer waits for dependents.
func (t *reporter) blocking(h *store.Stored, _ metav1.ObjectMeta, depth int) ([]v1.Reason, error) {
	if h.Finalizing&store.FinalizeForeground == 0 {
		return nil, nil
	}
	owner := gc.AsOwner(t.kinds, h.Key, h.UID)
	n, err := graph.CountBlocking(t.ctx, t.r, owner)
	if err != nil || n == 0 {
		return nil, err
	}
	children, err := t.children(v1.ReasonDependent, depth, n, func() ([]*store.Stored, error) {
		return t.r.BlockingDependents(t.ctx, owner, maxChildren)
	})
	return []v1.Reason{{
		Type:     v1.ReasonBlockingDependents,
		Message:  fmt.Sprintf("blocked by %d %s", n, deletion.Plural(n, "dependent")),
		Resolve:  "see below what keeps them; to stop waiting for them: " + deletion.Command(t.reference(h.Key, ""), "delete", "--cascade=background"),
		Children: children,
	}}, err
}

// kindCount is how many objects of a kind are left.
type kindCount struct {
	kind  string
	count int64
}

// content counts the objects in a namespace, by kind.
func (t *reporter) content(namespace string) ([]kindCount, error) {
	kinds, err := t.r.Kinds(t.ctx, store.AllNamespaces)
	if err != nil {
		return nil, err
	}
	var out []kindCount
	for _, kind := range slices.Concat(gc.Waves(kinds)...) {
		n, err := t.r.Count(t.ctx, kind, namespace, math.MaxInt64)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			out = append(out, kindCount{kind, n})
		}
	}
	return out, nil
}

// namespaceContent: a namespace waits until it is empty, and each wave of its
// content waits for the earlier ones.
func (t *reporter) namespaceContent(h *store.Stored, _ metav1.ObjectMeta, depth int) ([]v1.Reason, error) {
	if h.Kind != object.Namespaces {
		return nil, nil
	}
	content, err := t.content(h.Name)
	if err != nil || len(content) == 0 {
		return nil, err
	}
	reason := v1.Reason{Type: v1.ReasonNamespaceContent, Resolve: "see below what keeps it"}
	total, present := int64(0), []string(nil)
	for _, c := range content {
		total += c.count
		present = append(present, c.kind)
		children, err := t.children(v1.ReasonContent, depth, -1, func() ([]*store.Stored, error) {
			return t.r.Select(t.ctx, store.Selection{Kind: c.kind, Namespace: h.Name, State: store.Deleting, Limit: maxChildren})
		})
		if err != nil {
			return nil, err
		}
		waiting, err := t.notAdmitted(c.kind, h.Name)
		if err != nil {
			return nil, err
		}
		reason.Children = append(reason.Children, v1.Reason{
			Type:     v1.ReasonContent,
			Message:  fmt.Sprintf("%d of kind %s", c.count, t.kindName(c.kind)),
			Children: append(children, waiting...),
		})
	}
	reason.Message = fmt.Sprintf("it is not empty: %d %s left", total, deletion.Plural(total, "object"))
	if waves := gc.Waves(present); len(waves) > 1 {
		reason.Message += fmt.Sprintf("; its %s go first", waves[0][0])
	}
	return []v1.Reason{reason}, nil
}

// definitionContent: a definition waits for the objects of its kind.
func (t *reporter) definitionContent(h *store.Stored, _ metav1.ObjectMeta, depth int) ([]v1.Reason, error) {
	if h.Kind != object.Definitions {
		return nil, nil
	}
	storage, ok := kind.Defined(h.Body)
	if !ok {
		return nil, nil
	}
	n, err := t.r.Count(t.ctx, storage, store.AllNamespaces, math.MaxInt64)
	if err != nil || n == 0 {
		return nil, err
	}
	children, err := t.children(v1.ReasonContent, depth, -1, func() ([]*store.Stored, error) {
		return t.r.Select(t.ctx, store.Selection{Kind: storage, Namespace: store.AllNamespaces, State: store.Deleting, Limit: maxChildren})
	})
	return []v1.Reason{{
		Type: v1.ReasonDefinitionContent, Message: fmt.Sprintf("%d %s of the kind left", n, deletion.Plural(n, "object")),
		Resolve: "see below what keeps them", Children: children,
	}}, err
}

// children reports the objects that a read finds, each with its own reasons,
// at most maxDepth deep and maxObjects in all. total is how many there are; -1: not
// known.
func (t *reporter) children(sort v1.ReasonType, depth int, total int64, read func() ([]*store.Stored, error)) ([]v1.Reason, error) {
	if depth+1 >= maxDepth || t.objects >= maxObjects {
		t.truncated = true
		return nil, nil
	}
	heads, err := read()
	if err != nil {
		return nil, err
	}
	t.truncated = t.truncated || total > int64(len(heads)) || total < 0 && len(heads) == maxChildren
	var out []v1.Reason
	for _, h := range heads {
		t.objects++
		ref := t.reference(h.Key, h.UID)
		reason := v1.Reason{Type: sort, Object: &ref}
		switch {
		case t.reported[h.UID]:
			reason.Message = deletion.Describe(ref) + " is being deleted; see above"
		case h.Deletion != 0:
			reason.Message = deletion.Describe(ref) + " is being deleted"
			if reason.Children, err = t.reasons(h, depth+1); err != nil {
				return nil, err
			}
		default:
			if reason, err = t.waiting(sort, h); err != nil {
				return nil, err
			}
		}
		out = append(out, reason)
	}
	return out, nil
}

// kindName returns the name of a kind for people.
func (t *reporter) kindName(storage string) string {
	if k, ok := t.kinds.Stored(storage); ok {
		return k.Name
	}
	return storage
}
