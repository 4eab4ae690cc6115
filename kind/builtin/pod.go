package builtin

import (
	"cmp"
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/utils/ptr"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

var podResource = corev1.SchemeGroupVersion.WithResource("pods")

func podDef() def {
	return def{
		obj: &corev1.Pod{}, plural: "pods", short: []string{"po"}, all: true, returnsDeleted: true,
		strategy: pod.Strategy, status: pod.StatusStrategy,
		prepare: hook(preparePod),
		rules:   lifecycle.Rules{Graceful: podGrace},
	}
}

// preparePod gives a pod the account that every namespace has. Nodes create mirror pods, which
// have none.
func preparePod(pod, old *corev1.Pod) {
	switch {
	case old != nil:
		keepCompletion(pod, old)
	case !IsMirror(pod):
		pod.Spec.ServiceAccountName = cmp.Or(pod.Spec.ServiceAccountName, object.DefaultAccount)
		pod.Spec.DeprecatedServiceAccount = pod.Spec.ServiceAccountName
	}
}

// PodEphemeralStrategy is the strategy of pods/ephemeralcontainers: kubectl debug.
func PodEphemeralStrategy() lifecycle.Strategy {
	return newStrategy(pod.EphemeralContainersStrategy, podResource, "ephemeralcontainers")
}

// PodResizeStrategy is the strategy of pods/resize: it changes the cpu and the memory of
// running containers.
func PodResizeStrategy() lifecycle.Strategy {
	return newStrategy(pod.ResizeStrategy, podResource, "resize")
}

// PodBindingStrategy is the strategy with which a pod gets its node. The caller has
// decided what changes: Kubernetes has no rules here either.
func PodBindingStrategy() lifecycle.Strategy {
	return binding{newStrategy(pod.Strategy, podResource, "binding")}
}

type binding struct{ *strategy }

func (binding) Update(context.Context, runtime.Object, runtime.Object) ([]string, field.ErrorList) {
	return nil, nil
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
	return ptr.Deref(pod.Spec.Grace, int64(corev1.DefaultTerminationGracePeriodSeconds)), true
}
