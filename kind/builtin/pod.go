package builtin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
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

// preparePod gives both fields of a pod's account the same name. Nodes create mirror pods, which
// have none.
func preparePod(pod, old *corev1.Pod) {
	switch {
	case old != nil:
		keepCompletion(pod, old)
	case !IsMirror(pod):
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

const (
	// tokenVolume is how the name of the volume with a pod's token begins.
	tokenVolume = "kube-api-access-"
	// tokenPath is where programs in a pod look for their token.
	tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"
	// tokenSeconds is the lifetime that kubelets ask for. It is a little more than an hour,
	// by which Kubernetes knows such tokens.
	tokenSeconds = 3607
	// nodeSeconds is how long a pod stays on a node that is not ready or not reachable.
	nodeSeconds = 300
)

// IsMirror reports whether a node made this pod for one of its static pods. Mirror pods stay
// as the node wrote them.
func IsMirror(pod *corev1.Pod) bool {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror
}

// UseAccount gives a new pod the account that every namespace has, unless it names one, and
// what the account has: pull secrets, and the volume
// with its token, in each container that mounts nothing at that path. Suffix completes the
// name of the volume.
func UseAccount(pod *corev1.Pod, account *corev1.ServiceAccount, suffix string) {
	spec := &pod.Spec
	spec.ServiceAccountName = cmp.Or(spec.ServiceAccountName, object.DefaultAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	if len(spec.ImagePullSecrets) == 0 {
		spec.ImagePullSecrets = append(spec.ImagePullSecrets, account.ImagePullSecrets...)
	}
	if !ptr.Deref(spec.AutomountServiceAccountToken, ptr.Deref(account.AutomountServiceAccountToken, true)) {
		return
	}
	name, exists := tokenVolume+suffix, false
	for i := range spec.Volumes {
		if strings.HasPrefix(spec.Volumes[i].Name, tokenVolume) {
			name, exists = spec.Volumes[i].Name, true
			break
		}
	}
	mounted := mountToken(spec.InitContainers, name)
	mounted = mountToken(spec.Containers, name) || mounted
	if mounted && !exists {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: tokenSource()}})
	}
}

// mountToken reports whether a container needed the volume.
func mountToken(containers []corev1.Container, volume string) (needed bool) {
	for i := range containers {
		c, taken := &containers[i], false
		for j := range c.VolumeMounts {
			taken = taken || c.VolumeMounts[j].MountPath == tokenPath
		}
		if !taken {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, ReadOnly: true, MountPath: tokenPath})
			needed = true
		}
	}
	return needed
}

func tokenSource() *corev1.ProjectedVolumeSource {
	mode, seconds := corev1.ProjectedVolumeSourceDefaultMode, int64(tokenSeconds)
	return &corev1.ProjectedVolumeSource{DefaultMode: &mode, Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &seconds}},
		{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: object.RootCA}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
		}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
			{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}},
		}}},
	}}
}

// TolerateNodes lets a pod stay for some minutes on a node that is not ready or not
// reachable, unless the pod says how long itself.
func TolerateNodes(spec *corev1.PodSpec) {
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		if tolerates(spec, taint) {
			continue
		}
		seconds := int64(nodeSeconds)
		spec.Tolerations = append(spec.Tolerations, corev1.Toleration{
			Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds,
		})
	}
}

func tolerates(spec *corev1.PodSpec, taint string) bool {
	for i := range spec.Tolerations {
		t := &spec.Tolerations[i]
		if (t.Key == taint || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "") {
			return true
		}
	}
	return false
}

// Prioritize gives a new pod the priority of its class. Class is nil for a pod that names
// none, if no class is the default. It refuses a pod that says another priority itself.
func Prioritize(spec *corev1.PodSpec, class *schedulingv1.PriorityClass) error {
	lower := corev1.PreemptLowerPriority
	priority, policy := int32(0), &lower
	if class != nil {
		spec.PriorityClassName, priority, policy = class.Name, class.Value, class.PreemptionPolicy
	}
	if said := spec.Priority; said != nil && *said != priority {
		return fmt.Errorf("the integer value of priority (%d) must not be provided in pod spec; priority admission controller computed %d from the given PriorityClass name", *said, priority)
	}
	spec.Priority = &priority
	if policy == nil {
		return nil
	}
	if said := spec.PreemptionPolicy; said != nil && *said != *policy {
		return fmt.Errorf("the string value of PreemptionPolicy (%s) must not be provided in pod spec; priority admission controller computed %s from the given PriorityClass name", *said, *policy)
	}
	set := *policy
	spec.PreemptionPolicy = &set
	return nil
}

// keepCompletion gives back to a pod what its creation added and a client left out of its
// update: kubectl replace sends the client's own file.
func keepCompletion(obj, old *corev1.Pod) {
	obj.Spec.Priority = cmp.Or(obj.Spec.Priority, old.Spec.Priority)
	obj.Spec.PreemptionPolicy = cmp.Or(obj.Spec.PreemptionPolicy, old.Spec.PreemptionPolicy)
	if tolerates(&old.Spec, corev1.TaintNodeNotReady) && tolerates(&old.Spec, corev1.TaintNodeUnreachable) {
		TolerateNodes(&obj.Spec)
	}
}
