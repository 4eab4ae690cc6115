package gc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
)

// namespaceFinalizer is the entry of spec.finalizers that stands for us.
const namespaceFinalizer = corev1.FinalizerKubernetes

// pods leave a namespace before everything else (KEP-5080).
const pods = "pods"

// shownLeaving bounds how many lingering objects are read for the conditions.
const shownLeaving = 200

var namespaceKind = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}

func asRefusal(err error, target **object.Error) bool { return errors.As(err, target) }

// namespace empties a terminating namespace: pods first, then the rest, and
// then it may go. Its conditions say in every phase what is left and why.
func (s *session) namespace(ctx context.Context, o *item) (review.Verdict, error) {
	ns := &corev1.Namespace{}
	if err := object.DecodeInto(o.Body, "", namespaceKind, ns); err != nil {
		return review.Verdict{}, err
	}
	kinds, err := s.kindsIn(ctx, ns.Name)
	if err != nil {
		return review.Verdict{}, err
	}
	before := s.budget
	first, rest := []string{}, []string{}
	for kind := range kinds {
		if kind == pods {
			first = append(first, kind)
		} else {
			rest = append(rest, kind)
		}
	}
	phase := first
	if len(first) == 0 {
		phase = rest
	}
	sort.Strings(phase)
	for _, kind := range phase {
		if err := s.empty(ctx, kind, ns.Name); err != nil {
			return review.Verdict{}, err
		}
	}
	if s.budget <= 0 {
		return review.Progressed(0), nil
	}
	left, err := s.kindsIn(ctx, ns.Name)
	if err != nil {
		return review.Verdict{}, err
	}
	if len(left) == 0 {
		return s.release(ctx, o, ns)
	}
	if kinds[pods] > 0 && left[pods] == 0 {
		return review.Progressed(0), nil // the rest now
	}
	if err := s.setConditions(ctx, o, ns, left); err != nil {
		return review.Verdict{}, err
	}
	return acted(s.budget < before), nil // a trigger reviews it when something goes
}

// kindsIn counts what is in a namespace, by kind.
func (s *session) kindsIn(ctx context.Context, namespace string) (map[string]int, error) {
	var stored []string
	var b sqldb.Batch
	b.Query(func(row sqldb.Row) error {
		var kind string
		err := row.Scan(&kind)
		stored = append(stored, kind)
		return err
	}, kindsStored)
	if err := s.tx.Send(ctx, &b); err != nil {
		return nil, fmt.Errorf("list kinds: %w", err)
	}
	counts := map[string]int{}
	b = sqldb.Batch{}
	for _, kind := range stored {
		b.Query(func(row sqldb.Row) error {
			var n int64
			err := row.Scan(&n)
			if n > 0 {
				counts[kind] = int(n)
			}
			return err
		}, countOf, kind, namespace)
	}
	if b.Len() == 0 {
		return counts, nil
	}
	return counts, s.tx.Send(ctx, &b)
}

// empty sends what is left of a kind on its way.
func (s *session) empty(ctx context.Context, kind, namespace string) error {
	for s.budget > 0 {
		limit := s.budget
		batch, err := s.query(ctx, contentOf, kind, namespace, limit)
		if err != nil {
			return err
		}
		for _, o := range batch {
			m, err := object.ParseMeta(o.Body)
			if err != nil {
				return fmt.Errorf("read %s: %w", o.Key, err)
			}
			if err := s.delete(o, m, metav1.DeletePropagationBackground); err != nil {
				return err
			}
		}
		if err := s.flush(ctx); err != nil {
			return err
		}
		if len(batch) < limit {
			return nil
		}
	}
	return nil
}

// release takes us off spec.finalizers, and lets the namespace go if nobody
// else holds it.
func (s *session) release(ctx context.Context, o *item, ns *corev1.Namespace) (review.Verdict, error) {
	ns.Spec.Finalizers = slices.DeleteFunc(ns.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == namespaceFinalizer })
	setContentConditions(ns, nil, nil, s.now)
	body, err := object.Encode(ns)
	if err != nil {
		return review.Verdict{}, err
	}
	if lifecycle.RemoveNow(body, ns.ObjectMeta, s.rules(o.Kind)) {
		s.remove(o)
		return review.Acted(), s.flush(ctx)
	}
	if string(body) == string(o.Body) {
		return review.Kept(), nil
	}
	if err := s.replace(o, &ns.ObjectMeta, body); err != nil {
		return review.Verdict{}, err
	}
	return review.Acted(), s.flush(ctx)
}

// setConditions says what is left, if that is not what the namespace says.
func (s *session) setConditions(ctx context.Context, o *item, ns *corev1.Namespace, left map[string]int) error {
	finalizers := map[string]int{}
	for kind := range left {
		lingering, err := s.query(ctx, leavingOf, kind, ns.Name, shownLeaving)
		if err != nil {
			return err
		}
		for _, d := range lingering {
			m, err := object.ParseMeta(d.Body)
			if err != nil {
				return err
			}
			for _, f := range m.Finalizers {
				finalizers[f]++
			}
		}
	}
	setContentConditions(ns, left, finalizers, s.now)
	body, err := object.Encode(ns)
	if err != nil || string(body) == string(o.Body) {
		return err
	}
	if err := s.replace(o, &ns.ObjectMeta, body); err != nil {
		return err
	}
	return s.flush(ctx)
}

// setContentConditions gives a namespace the conditions that Kubernetes gives
// a terminating one.
func setContentConditions(ns *corev1.Namespace, left, finalizers map[string]int, now time.Time) {
	set := func(t corev1.NamespaceConditionType, bad bool, reason, okReason, message, okMessage string) {
		c := corev1.NamespaceCondition{Type: t, Status: corev1.ConditionFalse, Reason: okReason, Message: okMessage}
		if bad {
			c.Status, c.Reason, c.Message = corev1.ConditionTrue, reason, message
		}
		at := slices.IndexFunc(ns.Status.Conditions, func(old corev1.NamespaceCondition) bool { return old.Type == t })
		if at < 0 {
			c.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
			ns.Status.Conditions = append(ns.Status.Conditions, c)
			return
		}
		old := ns.Status.Conditions[at]
		c.LastTransitionTime = old.LastTransitionTime
		if old.Status != c.Status {
			c.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
		}
		ns.Status.Conditions[at] = c
	}
	set(corev1.NamespaceDeletionDiscoveryFailure, false, "", "ResourcesDiscovered", "", "All resources successfully discovered")
	set(corev1.NamespaceDeletionGVParsingFailure, false, "", "ParsedGroupVersions", "", "All legacy kube types successfully parsed")
	set(corev1.NamespaceDeletionContentFailure, false, "", "ContentDeleted", "", "All content successfully deleted, may be waiting on finalization")
	set(corev1.NamespaceContentRemaining, len(left) > 0, "SomeResourcesRemain", "ContentRemoved",
		"Some resources are remaining: "+countsText(left, "%s has %d resource instances"), "All content successfully removed")
	set(corev1.NamespaceFinalizersRemaining, len(finalizers) > 0, "SomeFinalizersRemain", "ContentHasNoFinalizers",
		"Some content in the namespace has finalizers remaining: "+countsText(finalizers, "%s in %d resource instances"),
		"All content-preserving finalizers finished")
}

func countsText(counts map[string]int, format string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		shown := name
		if strings.HasPrefix(format, "%s has") && !strings.Contains(name, ".") {
			shown += "." // Kubernetes writes the core group so: "pods."
		}
		parts = append(parts, fmt.Sprintf(format, shown, counts[name]))
	}
	return strings.Join(parts, ", ")
}
