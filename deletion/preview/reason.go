package preview

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/deletion"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
)

// item names an object of the walk and says why it has its action.
func (w *walk) item(q *question, owners map[types.UID]gc.Owner, options metav1.DeleteOptions) (v1.Item, error) {
	at := w.index[q.UID]
	n := &w.nodes[at]
	item := v1.Item{
		ObjectReference: w.reference(q.Key, q.UID), Action: w.action(n), Uncertain: w.uncertain(n),
	}
	if at > 0 {
		item.Owner = w.followed(q, n)
		item.Owners = ownersOf(&q.meta)
	}
	hold := Holders{}
	if n.holds && !n.denied {
		var err error
		if hold, err = w.holders(q, at == 0, options); err != nil {
			return item, err
		}
		item.Finalizers = hold.Finalizers
	}
	switch item.Action {
	case v1.Keep:
		item.Reason = w.whyKept(q, n, owners)
	case v1.Orphan:
		item.Reason = "orphaned by " + w.ownerIn(q, func(n *node) bool { return n.state == orphaning })
	case v1.Block:
		if !n.denied {
			item.Reason = hold.String()
		}
		if q.Deletion != 0 && lifecycle.GuardOf(&q.meta).Held {
			item.Reason = "waits until its own cascade is confirmed"
		}
	case v1.Wait:
		item.Reason = w.whyWaiting(q, n)
	default:
		item.Reason = w.whyDeleted(q, n, at == 0)
	}
	if n.was {
		item.Reason = "already being deleted; " + item.Reason
	}
	if err := w.denial(q, n); at > 0 && err != nil {
		item.Reason = strings.TrimSuffix("a policy refuses its deletion: "+err.Error()+"; "+item.Reason, "; ")
	}
	if k, ok := w.kinds.Stored(q.Kind); ok && k.Content != nil && n.leaving() {
		if content := k.Content(q.Body); content != "" {
			item.Reason += "; with it go " + content
		}
	}
	return item, nil
}

// denial returns the refusal of a delete by the collector that is to come.
func (w *walk) denial(q *question, n *node) error {
	if w.collected == nil || !n.leaving() || n.was || n.why == inDefinition {
		return nil
	}
	emptied, err := w.isEmptied(q.Namespace)
	if err != nil {
		return err
	}
	background := metav1.DeletePropagationBackground
	return w.collected(w.r.ctx, q.Object, metav1.DeleteOptions{PropagationPolicy: &background}, emptied)
}

// ownersOf returns the owners that an object's metadata names.
func ownersOf(m *metav1.ObjectMeta) (owners []v1.Owner) {
	for _, r := range m.OwnerReferences[:min(len(m.OwnerReferences), v1.MaxOwners)] {
		owners = append(owners, v1.Owner{
			APIVersion: r.APIVersion, Kind: r.Kind, Name: r.Name, UID: r.UID, Blocked: r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion,
		})
	}
	return owners
}

// refusal returns the error with which the kind of the object itself, or a policy, forbids its deletion.
// Empty: it does not.
func (w *walk) refusal(h *head) string {
	if rules := w.rules(h.Kind); rules.Refuse != nil {
		if err := rules.Refuse(h.Name); err != nil {
			return err.Error()
		}
	}
	if w.denied != nil {
		return w.denied.Error()
	}
	return ""
}

// addJudges names what may judge the deletes of the objects that leave. What decides on the
// object itself was asked already, but for webhooks, which may have effects.
func (w *walk) addJudges(status *v1.DeletionPreviewStatus, client kind.Client) {
	if client.Judges == nil || w.nodes[0].refused {
		return
	}
	kinds := map[int32]bool{}
	for i := range w.nodes {
		kinds[w.nodes[i].kind] = kinds[w.nodes[i].kind] || w.nodes[i].leaving() && !w.nodes[i].was
	}
	for kind := range w.leaves.counts {
		kinds[kind] = true
	}
	for kind, leaves := range kinds {
		if leaves {
			status.Judges = append(status.Judges, client.Judges(w.names[kind])...)
		}
	}
	slices.Sort(status.Judges)
	status.Judges = slices.Compact(status.Judges)
}

// holders returns what will keep the object DELETING.
func (w *walk) holders(q *question, itself bool, options metav1.DeleteOptions) (Holders, error) {
	m, body := q.meta, q.Body
	if q.Deletion == 0 || itself {
		if !itself {
			background := metav1.DeletePropagationBackground
			options = metav1.DeleteOptions{PropagationPolicy: &background}
		}
		d, err := lifecycle.BeforeDelete(lifecycle.Deletion{
			Body: q.Body, Meta: q.meta, Options: options, Rules: w.rules(q.Kind), Now: w.now,
		})
		if err != nil {
			return Holders{}, fmt.Errorf("delete %s: %w", q.Key, err)
		}
		m, body = d.Meta, d.Body
	}
	return HoldersOf(q.Kind, m, body), nil
}

// String describes the holders for people.
func (h Holders) String() string {
	var parts []string
	if len(h.Finalizers) > 0 {
		parts = append(parts, "held by "+deletion.Plural(len(h.Finalizers), "finalizer")+" "+strings.Join(h.Finalizers, ", "))
	}
	if len(h.Spec) > 0 {
		parts = append(parts, "held by spec.finalizers "+strings.Join(h.Spec, ", "))
	}
	if h.Grace > 0 {
		parts = append(parts, fmt.Sprintf("has %v of grace", time.Duration(h.Grace)*time.Second))
	}
	if len(parts) == 0 {
		return "held by the rules of its kind"
	}
	return strings.Join(parts, "; ")
}

func (w *walk) whyDeleted(q *question, n *node, itself bool) string {
	switch {
	case itself && n.state == foreground:
		return "the object itself, after its dependents"
	case itself:
		return "the object itself"
	case n.why == inNamespace:
		return "in namespace " + q.Namespace + ", which is deleted"
	case n.why == inDefinition:
		return "of a kind whose definition is deleted"
	}
	return "owned by " + w.ownerIn(q, (*node).leaving)
}

func (w *walk) whyWaiting(q *question, n *node) string {
	switch {
	case n.why == behindOthers:
		return "goes when what leaves namespace " + q.Namespace + " first is gone: pods, then provisioned resources"
	case n.later && n.why != byOwner:
		return "goes with what contains it, which waits itself"
	case n.later:
		return "goes when " + w.ownerIn(q, func(o *node) bool {
			return o.later || o.state == held || o.state == emptying || o.state == stalled
		}) + " goes"
	case n.asks:
		return "waits until a policy admits the deletion of a dependent"
	case n.blocked:
		return "waits for dependents that block it"
	case n.stuck:
		return "waits for what is left in it"
	}
	return "waits for others"
}

// whyKept names an owner that keeps the object.
func (w *walk) whyKept(q *question, n *node, owners map[types.UID]gc.Owner) string {
	if n.refused {
		return w.refusal(q.head)
	}
	for _, r := range q.meta.OwnerReferences {
		switch w.standing(q.Namespace, &r, owners) {
		case gc.Solid:
			return fmt.Sprintf("also owned by %s %s, which stays", r.Kind, r.Name)
		case gc.Unknown:
			return fmt.Sprintf("also owned by %s %s, a kind that this server does not serve, so it is kept", r.Kind, r.Name)
		case gc.Unresolvable:
			return fmt.Sprintf("cluster-scoped, so its owner %s %s cannot be resolved and it is never collected", r.Kind, r.Name)
		}
	}
	return "has no owner that leaves"
}

// followed returns the uid of the node that an object leaves with.
func (w *walk) followed(q *question, n *node) types.UID {
	if n.why != byOwner {
		return w.nodes[0].uid // the root contains it, or contains its container
	}
	for _, r := range q.meta.OwnerReferences {
		if o := w.find(r.UID); o != nil && o.leaving() {
			return r.UID
		}
	}
	return ""
}

// ownerIn names the first owner whose node matches.
func (w *walk) ownerIn(q *question, fits func(*node) bool) string {
	for _, r := range q.meta.OwnerReferences {
		if n := w.find(r.UID); n != nil && fits(n) {
			return r.Kind + " " + r.Name
		}
	}
	return "its owner"
}

// hide removes the items of other objects that the client may not get.
func (s *Service) hide(client kind.Client, status *v1.DeletionPreviewStatus) {
	kinds := s.kinds.Snapshot()
	hidden := func(i v1.Item) bool { return deletion.MayGet(client, kinds, i.ObjectReference) != nil }
	all := len(status.Items)
	status.Items, status.Blockers = slices.DeleteFunc(status.Items, hidden), slices.DeleteFunc(status.Blockers, hidden)
	status.Hidden = int64(all - len(status.Items))
}
