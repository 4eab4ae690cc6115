package preview

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// Storage names of the kinds that contain others, and of what leaves first.
const (
	namespaces  = "namespaces"
	definitions = "customresourcedefinitions.apiextensions.k8s.io"
)

// question is an object about which a decision is due.
type question struct {
	*head
	meta metav1.ObjectMeta
}

// decide asks the collector's rule about each object, with the owners as they
// are at this point of the walk.
func (w *walk) decide(open []question) error {
	if len(open) == 0 {
		return nil
	}
	owners, err := w.lookUp(open)
	if err != nil {
		return err
	}
	var parents map[types.UID]bool
	if w.waits { // only then the rule looks at it
		uids := make([]types.UID, len(open))
		for i := range open {
			uids[i] = open[i].uid
		}
		if parents, err = w.r.withDependents(uids); err != nil {
			return err
		}
	}
	for i := range open {
		if err := w.decideOne(&open[i], owners, parents); err != nil {
			return err
		}
	}
	return nil
}

// lookUp reads about owners, but for those that are known to be gone.
func (w *walk) lookUp(open []question) (map[types.UID]gc.Owner, error) {
	var uids []types.UID
	seen := map[types.UID]bool{}
	for i := range open {
		for _, r := range open[i].meta.OwnerReferences {
			if n := w.find(r.UID); !seen[r.UID] && (n == nil || n.state != gone) {
				seen[r.UID] = true
				uids = append(uids, r.UID)
			}
		}
	}
	return w.r.owners(uids)
}

func (w *walk) decideOne(q *question, owners map[types.UID]gc.Owner, parents map[types.UID]bool) error {
	standing := func(r *metav1.OwnerReference) gc.Standing { return w.standing(q.Namespace, r, owners) }
	d := gc.Decide(&q.meta, standing, parents[q.uid])
	n := node{state: kept, grace: noGrace}
	tally := w.tally(q, owners)
	if d.Action == gc.Delete {
		options := metav1.DeleteOptions{PropagationPolicy: &d.Policy}
		if tally.grace != noGrace {
			seconds := int64(tally.grace)
			options.GracePeriodSeconds = &seconds
			if parents[q.uid] {
				lifecycle.WithPropagatedGrace(&q.meta, seconds)
			}
		}
		var err error
		if n, err = w.fate(q.head, q.meta, options); err != nil {
			return err
		}
		n.shaky = tally.waiting > 0 && tally.waiting < tally.leaving && !w.later
	} else if tally.orphaning > 0 {
		n.state = orphaned
		// Its last reference goes, or its last owner: whichever is first.
		n.shaky = tally.leaving > tally.orphaning
	}
	n.several = tally.leaving > 1
	n.anyway = n.leaving() && w.anyway(q)
	n.shaky = n.shaky || tally.shaky
	w.put(q.head, n)
	return nil
}

// anyway says that an object leaves by a deletion that was there before this
// one: the last owner to go is one that was DELETING, and solid till then.
func (w *walk) anyway(q *question) bool {
	caused := false
	for _, r := range q.meta.OwnerReferences {
		n := w.find(r.UID)
		if n == nil || !n.leaving() {
			continue
		}
		if n.anyway || n.was && n.state != foreground {
			return true
		}
		caused = caused || !n.was
	}
	return !caused
}

// tally counts the owners of an object that exist and leave in this walk.
type tally struct {
	leaving, waiting, orphaning int
	grace                       int32 // what they pass on
	shaky                       bool
}

func (w *walk) tally(q *question, owners map[types.UID]gc.Owner) tally {
	t := tally{grace: noGrace}
	seen := map[types.UID]bool{}
	for _, r := range q.meta.OwnerReferences {
		n := w.find(r.UID)
		if n == nil || !n.leaving() || seen[r.UID] || owners[r.UID].Foreground {
			continue // not leaving, or leaving since before: never solid meanwhile
		}
		seen[r.UID] = true
		// Of several that differ, the one whose turn it is decides.
		t.shaky = t.shaky || len(seen) > 1 && t.grace != n.grace
		t.grace = max(t.grace, n.grace)
		t.leaving++
		switch n.state {
		case foreground:
			t.waiting++
		case orphaning:
			t.orphaning++
		case held, emptying, stalled:
			if !w.later && !n.passes {
				t.leaving--
			}
		}
		t.shaky = t.shaky || n.shaky
	}
	return t
}

// fate is what a delete makes of an object: the state that it is in then,
// whether others must act before it can leave, and what it passes on.
func (w *walk) fate(h *head, m metav1.ObjectMeta, options metav1.DeleteOptions) (node, error) {
	d, err := lifecycle.BeforeDelete(lifecycle.Deletion{
		Body: h.body, Meta: m, Options: options, Rules: w.rules(h.Kind), Now: w.now,
	})
	if err != nil {
		return node{}, fmt.Errorf("delete %s: %w", h.Key, err)
	}
	if d.Outcome == lifecycle.Remove {
		return node{state: gone, grace: noGrace}, nil
	}
	return w.deleting(h.Key, d.Meta, d.Body), nil
}

// deleting is the same for an object that is DELETING.
func (w *walk) deleting(key object.Key, m metav1.ObjectMeta, body []byte) node {
	if lifecycle.GuardOf(&m).Held {
		return node{state: held, holds: true, grace: noGrace}
	}
	hold := holdersOf(key.Kind, m, body)
	rules := w.rules(key.Kind)
	n := node{grace: noGrace, passes: slices.Contains(m.Finalizers, lifecycle.PropagateGrace)}
	n.holds = !hold.none() || key.Kind != namespaces && rules.Removable != nil && !rules.Removable(body)
	switch {
	case slices.Contains(m.Finalizers, metav1.FinalizerOrphanDependents):
		n.state = orphaning
		return n
	case slices.Contains(m.Finalizers, metav1.FinalizerDeleteDependents):
		n.state = foreground
	case key.Kind == namespaces && slices.Contains(specFinalizers(body), string(corev1.FinalizerKubernetes)),
		key.Kind == definitions && slices.Contains(m.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer):
		n.state = emptying
	case n.holds:
		n.state = held
	default:
		n.state = gone
	}
	if seconds, ok := lifecycle.PropagatedGrace(&m); ok && (n.passes || n.state == foreground) {
		n.grace = int32(min(seconds, math.MaxInt32))
	}
	return n
}

// rules are those of the kind. A kind that nobody serves any more has none.
func (w *walk) rules(storage string) lifecycle.Rules {
	if k, ok := w.kinds.Stored(storage); ok {
		return k.Rules
	}
	return lifecycle.Rules{}
}

// holders is what keeps a DELETING object that is not ours to end.
type holders struct {
	finalizers, spec []string // spec: spec.finalizers of a Namespace
	grace            int64    // seconds
}

func (h holders) none() bool { return len(h.finalizers) == 0 && len(h.spec) == 0 && h.grace == 0 }

func holdersOf(kind string, m metav1.ObjectMeta, body []byte) holders {
	var h holders
	for _, f := range m.Finalizers {
		ours := f == lifecycle.ConfirmCascade || f == lifecycle.PropagateGrace ||
			f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents ||
			kind == definitions && f == apiextensionsv1.CustomResourceCleanupFinalizer
		if !ours {
			h.finalizers = append(h.finalizers, f)
		}
	}
	if m.DeletionGracePeriodSeconds != nil {
		h.grace = *m.DeletionGracePeriodSeconds
	}
	if kind != namespaces {
		return h
	}
	for _, f := range specFinalizers(body) {
		if f != string(corev1.FinalizerKubernetes) {
			h.spec = append(h.spec, f)
		}
	}
	return h
}

// specFinalizers are those of a Namespace. A body that cannot be read has
// none that we could name.
func specFinalizers(body []byte) []string {
	var ns struct {
		Spec struct {
			Finalizers []string `json:"finalizers"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(body, &ns); err != nil {
		return nil
	}
	return ns.Spec.Finalizers
}
