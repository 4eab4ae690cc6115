package builtin

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

func podDef() def[corev1.Pod, *corev1.Pod] {
	return def[corev1.Pod, *corev1.Pod]{
		gv: corev1.SchemeGroupVersion, plural: "pods", returnsDeleted: true, short: []string{"po"}, all: true,
		rules:         lifecycle.Rules{Graceful: podGrace},
		parts:         func(p *corev1.Pod) (any, any) { return &p.Spec, &p.Status },
		generation:    true,
		prepareCreate: preparePod,
		prepareUpdate: keepCompletion,
		prepareStatus: preparePodStatus,
		statusResets: []fieldpath.Path{
			fieldpath.MakePathOrDie("metadata", "deletionTimestamp"),
			fieldpath.MakePathOrDie("metadata", "ownerReferences"),
		},
		validate:       validatePod,
		validateUpdate: validatePodUpdate,
		warn: func(p *corev1.Pod) []string {
			if msgs := validation.IsDNS1123Label(p.Name); len(msgs) > 0 {
				return []string{fmt.Sprintf("metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: %v", msgs)}
			}
			return nil
		},
		table: podTable,
	}
}

func preparePod(pod *corev1.Pod) {
	// A node creates mirror pods, which have no service account.
	if !IsMirror(pod) {
		fill(&pod.Spec.ServiceAccountName, object.DefaultAccount) // every namespace has it
		pod.Spec.DeprecatedServiceAccount = pod.Spec.ServiceAccountName
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: qosClass(&pod.Spec)}
	if len(pod.Spec.SchedulingGates) > 0 {
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: corev1.PodReasonSchedulingGated, Message: "Scheduling is blocked due to non-empty scheduling gates",
		}}
	}
}

// preparePodStatus keeps the owner references, which a node must not change, and the
// quality of service, which follows from the spec.
func preparePodStatus(obj, old *corev1.Pod) {
	obj.OwnerReferences = old.OwnerReferences
	obj.DeletionTimestamp = old.DeletionTimestamp
	fill(&obj.Status.QOSClass, old.Status.QOSClass)
	fill(&obj.Status.ObservedGeneration, old.Status.ObservedGeneration)
	defaultPodIPs(&obj.Status)
}

// podGrace returns the grace period of a delete. A pod that no node runs, or that has
// ended, gets 0. A negative period is returned unchanged: the lifecycle handles it in
// the same way for all kinds.
func podGrace(body []byte, requested *int64) (seconds int64, graceful bool) {
	var pod struct {
		Spec struct {
			NodeName string `json:"nodeName"`
			Grace    *int64 `json:"terminationGracePeriodSeconds"`
		} `json:"spec"`
		Status struct {
			Phase corev1.PodPhase `json:"phase"`
		} `json:"status"`
	}
	// A body that cannot be decoded is treated as a pod that no node runs.
	if err := json.Unmarshal(body, &pod); err != nil || pod.Spec.NodeName == "" ||
		pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return 0, true
	}
	if requested != nil {
		return *requested, true
	}
	return deref(pod.Spec.Grace, int64(corev1.DefaultTerminationGracePeriodSeconds)), true
}

// qosClass returns the pod's protection when its node runs out of memory: Guaranteed if
// requests equal limits, BestEffort if there are none, Burstable otherwise. Only cpu and
// memory count.
func qosClass(spec *corev1.PodSpec) corev1.PodQOSClass {
	demands := make([]corev1.ResourceRequirements, 0, len(spec.Containers)+len(spec.InitContainers))
	if spec.Resources != nil {
		demands = append(demands, *spec.Resources)
	} else {
		for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
			for i := range list {
				demands = append(demands, list[i].Resources)
			}
		}
	}
	guaranteed, bestEffort := len(demands) > 0, true
	for _, demand := range demands {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit, request := demand.Limits[name], demand.Requests[name]
			if !limit.IsZero() || !request.IsZero() {
				bestEffort = false
			}
			guaranteed = guaranteed && isGuaranteed(limit, request)
		}
	}
	switch {
	case bestEffort:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

// isGuaranteed says whether there is a limit and the request equals it or is absent, which
// defaults to the limit.
func isGuaranteed(limit, request resource.Quantity) bool {
	return !limit.IsZero() && (request.IsZero() || request.Cmp(limit) == 0)
}
