package quota

import (
	"encoding/json"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	arithmetic "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/component-helpers/resource"
	"k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	"k8s.io/utils/clock"
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

// countPods counts all pods; other names count those that have not ended.
const countPods = corev1.ResourceName("count/pods")

// measured are Kubernetes' own evaluators. They never list objects: the ledger counts.
var measured = map[string]arithmetic.Evaluator{
	pods:     core.NewPodEvaluator(nil, noTime{}),
	services: core.NewServiceEvaluator(nil),
	claims:   core.NewPersistentVolumeClaimEvaluator(nil),
}

// noTime is a clock that stands still, long ago: what an object uses follows from the object
// alone, because the ledger subtracts on its removal what it added before. The ledger itself
// knows which pods should have left (usedAt).
type noTime struct{ clock.Clock }

func (noTime) Now() time.Time { return time.Time{} }

// placeholder stands for an object that is only counted.
var placeholder runtime.Object = &metav1.PartialObjectMetadata{}

// hasContent reports whether an object of the kind uses more than one unit, so that an update
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
		now, asked := after.(*corev1.Pod), resource.PodResourcesOptions{}
		if !equality.Semantic.DeepEqual(resource.PodRequests(old, asked), resource.PodRequests(now, asked)) ||
			!equality.Semantic.DeepEqual(resource.PodLimits(old, asked), resource.PodLimits(now, asked)) {
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
	if e, ok := measured[kind]; ok {
		return e
	}
	if known, ok := counters.Load(kind); ok {
		return known.(arithmetic.Evaluator)
	}
	made, _ := counters.LoadOrStore(kind, generic.NewObjectCountEvaluator(schema.ParseGroupResource(kind), nil, classic[kind]))
	return made.(arithmetic.Evaluator)
}
