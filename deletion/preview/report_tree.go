package preview

import (
	"fmt"
	"slices"
	"time"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// orphaning: the orphan finalizer waits for a controller to see the deletion,
// and then for the collector.
func (t *reporter) orphaning(h *head, _ metav1.ObjectMeta, _ int) ([]v1.Reason, error) {
	if h.finalizing&store.FinalizeOrphan == 0 {
		return nil, nil
	}
	var n int64
	if err := t.r.one(countDependents, []any{string(h.uid)}, &n); err != nil {
		return nil, err
	}
	reason := v1.Reason{Type: v1.ReasonOrphaning, Message: fmt.Sprintf("%d %s to orphan", n, plural(int(n), "dependent"))}
	deadline := gc.OrphanDeadline(h.deletion, t.s.opts.OrphanWait)
	if seen, want, behind := gc.Unseen(t.s.kinds.Snapshot(), h.Kind, h.body); behind && deadline.After(t.now) {
		reason.Message += fmt.Sprintf("; its controller has seen generation %d, and should see %d first, so as not to adopt them again", seen, want)
		reason.Resolve = fmt.Sprintf("nothing: in %v, at %s, the collector stops waiting for the controller (--orphan-observed-generation-timeout)",
			deadline.Sub(t.now).Round(time.Second), deadline.UTC().Format(time.RFC3339))
	}
	return []v1.Reason{reason}, nil
}

// blocking: the foreground finalizer waits for dependents.
func (t *reporter) blocking(h *head, _ metav1.ObjectMeta, depth int) ([]v1.Reason, error) {
	if h.finalizing&store.FinalizeForeground == 0 {
		return nil, nil
	}
	var n int64
	if err := t.r.one(countBlocking, []any{string(h.uid)}, &n); err != nil || n == 0 {
		return nil, err
	}
	children, err := t.children(v1.ReasonDependent, depth, n, blockingDependents, string(h.uid), maxChildren)
	return []v1.Reason{{
		Type:     v1.ReasonBlockingDependents,
		Message:  fmt.Sprintf("blocked by %d %s", n, plural(int(n), "dependent")),
		Resolve:  "see below what keeps them; to stop waiting for them: " + command(t.s.reference(h.Key, ""), "delete", "--cascade=background"),
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
	kinds, err := t.r.kinds()
	if err != nil {
		return nil, err
	}
	var out []kindCount
	for _, kind := range slices.Concat(gc.Waves(kinds)...) {
		c := kindCount{kind: kind}
		if err := t.r.one(countContent, []any{kind, namespace}, &c.count); err != nil {
			return nil, err
		}
		if c.count > 0 {
			out = append(out, c)
		}
	}
	return out, nil
}

// namespaceContent: a namespace waits until it is empty, and each wave of its
// content waits for the earlier ones.
func (t *reporter) namespaceContent(h *head, _ metav1.ObjectMeta, depth int) ([]v1.Reason, error) {
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
		children, err := t.children(v1.ReasonContent, depth, -1, lingering, c.kind, h.Name, maxChildren)
		if err != nil {
			return nil, err
		}
		reason.Children = append(reason.Children, v1.Reason{
			Type:     v1.ReasonContent,
			Message:  fmt.Sprintf("%d of kind %s", c.count, t.kindName(c.kind)),
			Children: children,
		})
	}
	reason.Message = fmt.Sprintf("it is not empty: %d %s left", total, plural(int(total), "object"))
	if waves := gc.Waves(present); len(waves) > 1 {
		reason.Message += fmt.Sprintf("; its %s go first", waves[0][0])
	}
	return []v1.Reason{reason}, nil
}

// definitionContent: a definition waits for the objects of its kind.
func (t *reporter) definitionContent(h *head, _ metav1.ObjectMeta, depth int) ([]v1.Reason, error) {
	if h.Kind != object.Definitions {
		return nil, nil
	}
	storage, ok := definedKind(h.body)
	if !ok {
		return nil, nil
	}
	var n int64
	if err := t.r.one(countKind, []any{storage}, &n); err != nil || n == 0 {
		return nil, err
	}
	children, err := t.children(v1.ReasonContent, depth, -1, lingeringAnywhere, storage, maxChildren)
	return []v1.Reason{{
		Type: v1.ReasonDefinitionContent, Message: fmt.Sprintf("%d %s of the kind left", n, plural(int(n), "object")),
		Resolve: "see below what keeps them", Children: children,
	}}, err
}

// children reports the objects that a statement finds, each with its own reasons,
// at most maxDepth deep and maxObjects in all. total is how many there are; -1: not
// known.
func (t *reporter) children(sort v1.ReasonType, depth int, total int64, statement string, args ...any) ([]v1.Reason, error) {
	if depth+1 >= maxDepth || t.objects >= maxObjects {
		t.truncated = true
		return nil, nil
	}
	heads, err := t.r.heads(statement, args...)
	if err != nil {
		return nil, err
	}
	t.truncated = t.truncated || total > int64(len(heads)) || total < 0 && len(heads) == maxChildren
	var out []v1.Reason
	for i := range heads {
		h := &heads[i]
		t.objects++
		ref := t.s.reference(h.Key, h.uid)
		reason := v1.Reason{Type: sort, Object: &ref, Message: describe(ref) + " is not being deleted yet"}
		switch {
		case t.reported[h.uid]:
			reason.Message = describe(ref) + " is being deleted; see above"
		case h.deletion != 0:
			reason.Message = describe(ref) + " is being deleted"
			if reason.Children, err = t.reasons(h, depth+1); err != nil {
				return nil, err
			}
		}
		out = append(out, reason)
	}
	return out, nil
}

// kindName returns the name of a kind for people.
func (t *reporter) kindName(storage string) string {
	if k, ok := t.s.kinds.Snapshot().Stored(storage); ok {
		return k.Name
	}
	return storage
}
