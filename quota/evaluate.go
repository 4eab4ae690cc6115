package quota

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/admission"
	arithmetic "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

// The kinds whose content is measured. All others are only counted.
const (
	pods     = "pods"
	services = "services"
	claims   = "persistentvolumeclaims"
)

// classic are the kinds that have a name besides count/….
var classic = map[string]corev1.ResourceName{
	"configmaps":             corev1.ResourceConfigMaps,
	"resourcequotas":         corev1.ResourceQuotas,
	"replicationcontrollers": corev1.ResourceReplicationControllers,
	"secrets":                corev1.ResourceSecrets,
}

// placeholder stands for an object that is only counted.
var placeholder runtime.Object = &metav1.PartialObjectMetadata{}

// hasContent says whether an object of the kind uses more than one unit, so that an update
// may change what it uses.
func hasContent(kind string) bool { return kind == pods || kind == services || kind == claims }

// decode reads the content that is measured. Nil: there is no object.
func decode(kind string, body []byte) runtime.Object {
	var obj runtime.Object
	switch {
	case body == nil:
		return nil
	case kind == pods:
		obj = &corev1.Pod{}
	case kind == services:
		obj = &corev1.Service{}
	case kind == claims:
		obj = &corev1.PersistentVolumeClaim{}
	default:
		return placeholder.DeepCopyObject()
	}
	if json.Unmarshal(body, obj) != nil {
		return nil
	}
	return obj
}

// partOf names the subresource that an update went through, as far as the rules depend on
// it: the store does not know it.
func partOf(before, after runtime.Object) string {
	switch old := before.(type) {
	case *corev1.Pod:
		if !equality.Semantic.DeepEqual(podUsage(old, false), podUsage(after.(*corev1.Pod), false)) {
			return "resize"
		}
	case *corev1.PersistentVolumeClaim:
		if equality.Semantic.DeepEqual(old.Spec, after.(*corev1.PersistentVolumeClaim).Spec) {
			return "status" // a controller reports: it is never refused
		}
	}
	return ""
}

// kindsOf returns the kinds that a name of a quota counts.
func kindsOf(name corev1.ResourceName) []string {
	if kind, ok := strings.CutPrefix(string(name), "count/"); ok {
		return []string{kind}
	}
	one := []corev1.ResourceName{name}
	var kinds []string
	for _, kind := range []string{pods, services, claims} {
		if len(evaluatorFor(kind).MatchingResources(one)) > 0 {
			kinds = append(kinds, kind)
		}
	}
	for kind, alias := range classic {
		if alias == name {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

var counters sync.Map // kind to arithmetic.Evaluator; only grows with the kinds that are written

// evaluatorFor returns what measures the objects of a kind.
func evaluatorFor(kind string) arithmetic.Evaluator {
	switch kind {
	case pods:
		return podEvaluator
	case services:
		return serviceEvaluator
	case claims:
		return claimEvaluator
	}
	if known, ok := counters.Load(kind); ok {
		return known.(arithmetic.Evaluator)
	}
	made, _ := counters.LoadOrStore(kind, generic.NewObjectCountEvaluator(schema.ParseGroupResource(kind), nil, classic[kind]))
	return made.(arithmetic.Evaluator)
}

// evaluator measures a kind by its content.
type evaluator struct {
	resource    string
	handles     func(admission.Attributes) bool
	matching    func(corev1.ResourceName) bool
	scope       func(corev1.ScopedResourceSelectorRequirement, runtime.Object) (bool, error)
	usage       func(runtime.Object) corev1.ResourceList
	constraints func([]corev1.ResourceName, runtime.Object) error // nil: none
}

var _ arithmetic.Evaluator = (*evaluator)(nil)

func (e *evaluator) GroupResource() schema.GroupResource {
	return schema.GroupResource{Resource: e.resource}
}

func (e *evaluator) Handles(a admission.Attributes) bool { return e.handles(a) }

func (e *evaluator) Constraints(required []corev1.ResourceName, item runtime.Object) error {
	if e.constraints == nil {
		return nil
	}
	return e.constraints(required, item)
}

func (e *evaluator) Matches(q *corev1.ResourceQuota, item runtime.Object) (bool, error) {
	return generic.Matches(q, item, e.MatchingResources, e.scope)
}

func (e *evaluator) MatchingScopes(item runtime.Object, selectors []corev1.ScopedResourceSelectorRequirement) (out []corev1.ScopedResourceSelectorRequirement, err error) {
	for _, s := range selectors {
		match, err := e.scope(s, item)
		if err != nil {
			return nil, err
		}
		if match {
			out = append(out, s)
		}
	}
	return out, nil
}

// UncoveredQuotaScopes is for resources that are limited without a quota: there are none.
func (e *evaluator) UncoveredQuotaScopes([]corev1.ScopedResourceSelectorRequirement, []corev1.ScopedResourceSelectorRequirement) ([]corev1.ScopedResourceSelectorRequirement, error) {
	return nil, nil
}

func (e *evaluator) MatchingResources(names []corev1.ResourceName) (out []corev1.ResourceName) {
	for _, name := range names {
		if e.matching(name) {
			out = append(out, name)
		}
	}
	return out
}

func (e *evaluator) Usage(item runtime.Object) (corev1.ResourceList, error) {
	if item == nil || reflect.ValueOf(item).IsNil() {
		return nil, errors.New("there is no object to measure")
	}
	return e.usage(item), nil
}

// UsageStats is not used: the ledger counts.
func (e *evaluator) UsageStats(arithmetic.UsageStatsOptions) (arithmetic.UsageStats, error) {
	return arithmetic.UsageStats{}, errors.New("usage is counted by the ledger")
}

func one() resource.Quantity { return *resource.NewQuantity(1, resource.DecimalSI) }

func number(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }

// selects evaluates a scope selector against the value of its scope; empty: none.
func selects(s corev1.ScopedResourceSelectorRequirement, value string) (bool, error) {
	operators := map[corev1.ScopeSelectorOperator]selection.Operator{
		corev1.ScopeSelectorOpIn: selection.In, corev1.ScopeSelectorOpNotIn: selection.NotIn,
		corev1.ScopeSelectorOpExists: selection.Exists, corev1.ScopeSelectorOpDoesNotExist: selection.DoesNotExist,
	}
	requirement, err := labels.NewRequirement(string(s.ScopeName), operators[s.Operator], s.Values)
	if err != nil {
		return false, err
	}
	set := labels.Set{}
	if value != "" {
		set[string(s.ScopeName)] = value
	}
	return requirement.Matches(set), nil
}
