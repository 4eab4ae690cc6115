package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	arithmetic "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/component-helpers/resource"
)

const countPods = corev1.ResourceName("count/pods")

// computeNames are the names of a quota that every pod may use. count/pods counts all pods,
// the others those that have not ended.
var computeNames = []corev1.ResourceName{
	countPods, corev1.ResourcePods,
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
	corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsEphemeralStorage,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage,
}

var podEvaluator = &evaluator{
	resource: pods,
	handles: func(a admission.Attributes) bool {
		if a.GetOperation() != admission.Update {
			return a.GetOperation() == admission.Create && a.GetSubresource() == ""
		}
		if a.GetSubresource() == "resize" {
			return true
		}
		old, ok := a.GetOldObject().(*corev1.Pod)
		return ok && a.GetSubresource() == "" && hasDeadline(old) != hasDeadline(a.GetObject().(*corev1.Pod))
	},
	matching:    isPodName,
	scope:       podInScope,
	usage:       func(obj runtime.Object) corev1.ResourceList { return podUsage(obj.(*corev1.Pod), true) },
	constraints: mustSpecify,
}

func isPodName(name corev1.ResourceName) bool {
	text, request := strings.CutPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
	return slices.Contains(computeNames, name) || strings.HasPrefix(text, corev1.ResourceHugePagesPrefix) ||
		request && isExtended(corev1.ResourceName(text))
}

// isExtended says whether a resource is one that a device plugin, or a device class, brings.
func isExtended(name corev1.ResourceName) bool {
	text := string(name)
	return strings.Contains(text, "/") && !strings.Contains(text, "kubernetes.io/") || strings.HasPrefix(text, resourcev1.ResourceDeviceClassPrefix)
}

// podUsage is what a pod uses. fromStatus takes the resources into account that a node has
// given to a pod that is being resized.
func podUsage(pod *corev1.Pod, fromStatus bool) corev1.ResourceList {
	used := corev1.ResourceList{countPods: one()}
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return used
	}
	options := resource.PodResourcesOptions{UseStatusResources: fromStatus}
	maps.Copy(used, computeUsage(resource.PodRequests(pod, options), resource.PodLimits(pod, options)))
	return used
}

// computeUsage names requests and limits as quotas do.
func computeUsage(requests, limits corev1.ResourceList) corev1.ResourceList {
	used := corev1.ResourceList{corev1.ResourcePods: one()}
	for name, quantity := range requests {
		compute := name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage ||
			strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
		if compute {
			used[name] = quantity
		}
		if compute || isExtended(name) {
			used[corev1.DefaultResourceRequestsPrefix+name] = quantity
		}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if quantity, ok := limits[name]; ok {
			used["limits."+name] = quantity
		}
	}
	return used
}

// mustSpecify refuses a pod with a container that says nothing about cpu or memory that a
// quota limits: it could use all of it.
func mustSpecify(required []corev1.ResourceName, obj runtime.Object) error {
	pod := obj.(*corev1.Pod)
	if resource.IsPodLevelResourcesSet(pod) {
		return nil
	}
	missing := map[string][]string{}
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		has := computeUsage(c.Resources.Requests, c.Resources.Limits)
		for _, name := range required {
			_, ok := has[name]
			if base := name[strings.LastIndexByte(string(name), '.')+1:]; !ok && (base == corev1.ResourceCPU || base == corev1.ResourceMemory) {
				missing[string(name)] = append(missing[string(name)], c.Name)
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		slices.Sort(missing[name])
		texts = append(texts, fmt.Sprintf("%s for: %s", name, strings.Join(slices.Compact(missing[name]), ",")))
	}
	return fmt.Errorf("must specify %s", strings.Join(texts, "; "))
}

func hasDeadline(pod *corev1.Pod) bool {
	return pod.Spec.ActiveDeadlineSeconds != nil && *pod.Spec.ActiveDeadlineSeconds >= 0
}

func podInScope(s corev1.ScopedResourceSelectorRequirement, obj runtime.Object) (bool, error) {
	pod := obj.(*corev1.Pod)
	switch s.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return hasDeadline(pod), nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return !hasDeadline(pod), nil
	case corev1.ResourceQuotaScopeBestEffort:
		return isBestEffort(pod), nil
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !isBestEffort(pod), nil
	case corev1.ResourceQuotaScopePriorityClass:
		return selects(s, pod.Spec.PriorityClassName)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return crossesNamespaces(pod.Spec.Affinity), nil
	}
	return false, nil
}

// isBestEffort says whether no container of a pod asks for cpu or memory.
func isBestEffort(pod *corev1.Pod) bool {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass == corev1.PodQOSBestEffort
	}
	asks := func(r corev1.ResourceRequirements) bool {
		for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
			if !arithmetic.IsZero(arithmetic.Mask(list, []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory})) {
				return true
			}
		}
		return false
	}
	if pod.Spec.Resources != nil && asks(*pod.Spec.Resources) {
		return false
	}
	return !slices.ContainsFunc(slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers), func(c corev1.Container) bool { return asks(c.Resources) })
}

func crossesNamespaces(a *corev1.Affinity) bool {
	if a == nil {
		return false
	}
	var terms []corev1.PodAffinityTerm
	var weighted []corev1.WeightedPodAffinityTerm
	if p := a.PodAffinity; p != nil {
		terms, weighted = append(terms, p.RequiredDuringSchedulingIgnoredDuringExecution...), append(weighted, p.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	if p := a.PodAntiAffinity; p != nil {
		terms, weighted = append(terms, p.RequiredDuringSchedulingIgnoredDuringExecution...), append(weighted, p.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	for _, w := range weighted {
		terms = append(terms, w.PodAffinityTerm)
	}
	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool { return len(t.Namespaces) > 0 || t.NamespaceSelector != nil })
}
