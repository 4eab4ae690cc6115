package preview

import (
	"context"
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
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
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
		if at > 0 {
			options = metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}
			if grace := w.tally(q, owners).grace; grace != noGrace && n.why == byOwner {
				options.GracePeriodSeconds = new(int64(grace))
			}
		}
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
// Empty if it does not.
func (w *walk) refusal(h *head) string {
	if rules := w.kinds.Rules(h.Kind); rules.Refuse != nil {
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
		d, err := lifecycle.BeforeDelete(lifecycle.Deletion{
			Body: q.Body, Meta: q.meta, Options: options, Rules: w.kinds.Rules(q.Kind), Now: w.now,
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
