package gc

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/store"
)

// namespaceFinalizer is the collector's entry in spec.finalizers.
const namespaceFinalizer = corev1.FinalizerKubernetes

// first is the kinds that are deleted from a namespace before all others, in
// order. Pods are the first (KEP-5080). Provisioned resources are next: their
// teardown needs other objects in the namespace, the credentials and the
// composite resource, which must outlive the node.
var first = []string{object.Pods, object.ProvisionedResources}

// Waves groups the kinds in a namespace in the order of their deletion: each wave
// waits until the ones before it are gone.
func Waves(kinds []string) [][]string {
	waves := make([][]string, len(first)+1)
	for _, kind := range kinds {
		i := slices.Index(first, kind)
		if i < 0 {
			i = len(first)
		}
		waves[i] = append(waves[i], kind)
	}
	return slices.DeleteFunc(waves, func(wave []string) bool { return len(wave) == 0 })
}

// shownLeaving bounds how many lingering objects are read for the conditions.
const shownLeaving = 200

// shownFailures bounds how many failures a condition names.
const shownFailures = 10

// contentRetry is the retry interval for content that could not be deleted.
const contentRetry = 10 * time.Second

var namespaceKind = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}

// namespace empties a terminating namespace, wave by wave, and then releases it.
// The namespace's conditions say in every phase what is left and why.
func (s *session) namespace(ctx context.Context, o *item) (review.Verdict, error) {
	ns := &corev1.Namespace{}
	if err := object.DecodeInto(o.Body, "", namespaceKind, ns); err != nil {
		return review.Verdict{}, err
	}
	if err := s.setCause(ctx, string(o.UID)); err != nil {
		return review.Verdict{}, err
	}
	present, err := s.tx.Kinds(ctx, ns.Name)
	if err != nil {
		return review.Verdict{}, err
	}
	var wave []string
	if waves := Waves(present); len(waves) > 0 {
		wave = waves[0]
	}
	before := s.budget
	var failures []string
	for _, kind := range wave {
		failed, err := s.empty(ctx, kind, ns.Name)
		if err != nil {
			return review.Verdict{}, err
		}
		failures = append(failures, failed...)
	}
	if s.budget <= 0 {
		return review.Progressed(0), nil
	}
	left, err := s.tx.Kinds(ctx, ns.Name)
	switch {
	case err != nil:
		return review.Verdict{}, err
	case len(left) == 0:
		return s.release(ctx, o, ns)
	case len(wave) < len(present) && !slices.Contains(left, wave[0]):
		return review.Progressed(0), nil // the next wave now
	}
	if err := s.setConditions(ctx, o, ns, left, failures); err != nil {
		return review.Verdict{}, err
	}
	if len(failures) > 0 {
		return review.Again(contentRetry), nil
	}
	return acted(s.budget < before), nil // a trigger enqueues it when its content changes
}

// empty deletes the objects of a kind in a namespace. It continues after an object
// that cannot be deleted, and names it in failed.
func (s *session) empty(ctx context.Context, kind, namespace string) (failed []string, err error) {
	s.emptying = true
	defer func() { s.emptying = false }()
	for after := ""; s.budget > 0; {
		limit := s.budget
		batch, err := s.tx.Select(ctx, store.Selection{Kind: kind, Namespace: namespace, State: store.Active, After: after, Limit: limit})
		if err != nil {
			return nil, err
		}
		for _, o := range batch {
			m, err := object.ParseMeta(o.Body)
			if err == nil {
				err = s.delete(o, m, metav1.DeletePropagationBackground)
			}
			if err != nil && len(failed) < shownFailures {
				failed = append(failed, fmt.Sprintf("%s: %v", o.Key, err))
			}
		}
		if err := s.tx.Flush(); err != nil {
			return nil, err
		}
		if len(batch) < limit {
			break
		}
		after = batch[len(batch)-1].Name
	}
	return failed, nil
}

// release removes namespaceFinalizer from spec.finalizers, and removes the
// namespace if no other finalizer holds it.
func (s *session) release(ctx context.Context, o *item, ns *corev1.Namespace) (review.Verdict, error) {
	ns.Spec.Finalizers = slices.DeleteFunc(ns.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == namespaceFinalizer })
	setContentConditions(ns, content{}, s.now)
	body, err := object.Encode(ns)
	if err != nil {
		return review.Verdict{}, err
	}
	if lifecycle.RemoveNow(body, ns.ObjectMeta, s.kinds.Rules(o.Kind)) {
		s.remove(o, &ns.ObjectMeta)
		return review.Acted(), s.tx.Flush()
	}
	if string(body) == string(o.Body) {
		return review.Kept(), nil
	}
	if err := s.replace(o, &ns.ObjectMeta, body); err != nil {
		return review.Verdict{}, err
	}
	return review.Acted(), s.tx.Flush()
}

// content is what is left in a namespace.
type content struct {
	kinds      map[string]int // objects of each kind
	finalizers map[string]int // objects that each finalizer holds
	failures   []string       // what could not be deleted, and why
}

// setConditions writes the namespace's conditions if they changed.
func (s *session) setConditions(ctx context.Context, o *item, ns *corev1.Namespace, kinds, failures []string) error {
	left := content{map[string]int{}, map[string]int{}, failures}
	for _, kind := range kinds {
		if err := s.survey(ctx, kind, ns.Name, &left); err != nil {
			return err
		}
	}
	setContentConditions(ns, left, s.now)
	body, err := object.Encode(ns)
	if err != nil || string(body) == string(o.Body) {
		return err
	}
	if err := s.replace(o, &ns.ObjectMeta, body); err != nil {
		return err
	}
	return s.tx.Flush()
}

// survey counts the objects of a kind, and the finalizers on the first
// shownLeaving of those that are DELETING.
func (s *session) survey(ctx context.Context, kind, namespace string, left *content) error {
	n, err := s.tx.Count(ctx, kind, namespace, math.MaxInt64)
	if err != nil {
		return fmt.Errorf("count content of namespace %s: %w", namespace, err)
	}
	left.kinds[kind] = int(n)
	lingering, err := s.tx.Select(ctx, store.Selection{Kind: kind, Namespace: namespace, State: store.Deleting, Limit: shownLeaving})
	if err != nil {
		return err
	}
	for _, d := range lingering {
		m, err := object.ParseMeta(d.Body)
		if err != nil {
			left.failures = append(left.failures, fmt.Sprintf("%s: %v", d.Key, err))
			continue
		}
		for _, f := range m.Finalizers {
			left.finalizers[f]++
		}
	}
	return nil
}

// setContentConditions gives a namespace the conditions that Kubernetes gives
// a terminating one.
func setContentConditions(ns *corev1.Namespace, left content, now time.Time) {
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
	set(corev1.NamespaceDeletionContentFailure, len(left.failures) > 0, "ContentDeletionFailed", "ContentDeleted",
		"Failed to delete all resource types, objects remaining: "+strings.Join(left.failures, "; "), "All content successfully deleted, may be waiting on finalization")
	set(corev1.NamespaceContentRemaining, len(left.kinds) > 0, "SomeResourcesRemain", "ContentRemoved",
		"Some resources are remaining: "+countsText(left.kinds, "%s has %d resource instances"), "All content successfully removed")
	set(corev1.NamespaceFinalizersRemaining, len(left.finalizers) > 0, "SomeFinalizersRemain", "ContentHasNoFinalizers",
		"Some content in the namespace has finalizers remaining: "+countsText(left.finalizers, "%s in %d resource instances"),
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
