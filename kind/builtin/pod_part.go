package builtin

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/lifecycle"
)

// podPart is the strategy of a subresource of Pods that changes one part of an existing
// pod. prepare gets the pod as the client sent it and a copy of the stored pod, and moves
// the part from the one to the other.
type podPart struct {
	*strategy[corev1.Pod, *corev1.Pod]
	prepare  func(sent, next *corev1.Pod)
	validate func(pod, old *corev1.Pod) field.ErrorList
}

func newPodPart(prepare func(sent, next *corev1.Pod), validate func(pod, old *corev1.Pod) field.ErrorList) lifecycle.Strategy {
	return &podPart{&strategy[corev1.Pod, *corev1.Pod]{def: podDef()}, prepare, validate}
}

func (s *podPart) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	pod, was := obj.(*corev1.Pod), old.(*corev1.Pod)
	next := was.DeepCopy()
	s.prepare(pod, next)
	// The part's managers may change, and the version is the one that the client knows.
	next.ManagedFields, next.ResourceVersion = pod.ManagedFields, pod.ResourceVersion
	if !equality.Semantic.DeepEqual(next.Spec, was.Spec) {
		next.Generation++
	}
	*pod = *next
}

func (s *podPart) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return s.validate(obj.(*corev1.Pod), old.(*corev1.Pod))
}

func (s *podPart) AllowCreateOnUpdate(context.Context) bool { return false }

// PodBindingStrategy is the strategy with which a pod gets its node. The caller has
// decided what changes: Kubernetes has no rules here either.
func PodBindingStrategy() lifecycle.Strategy {
	return &bindingStrategy{&strategy[corev1.Pod, *corev1.Pod]{def: podDef()}}
}

type bindingStrategy struct {
	*strategy[corev1.Pod, *corev1.Pod]
}

func (s *bindingStrategy) PrepareForUpdate(context.Context, runtime.Object, runtime.Object) {}

func (s *bindingStrategy) ValidateUpdate(context.Context, runtime.Object, runtime.Object) field.ErrorList {
	return nil
}

// PodEphemeralStrategy is the strategy of pods/ephemeralcontainers: kubectl debug.
func PodEphemeralStrategy() lifecycle.Strategy {
	return newPodPart(func(sent, next *corev1.Pod) { next.Spec.EphemeralContainers = sent.Spec.EphemeralContainers }, validateEphemeral)
}

// isMirror says whether the pod only shows what a node runs by itself.
func isMirror(pod *corev1.Pod) bool {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror
}

// validateEphemeral allows containers to be added. They cannot leave or change.
func validateEphemeral(pod, old *corev1.Pod) field.ErrorList {
	at := specPath.Child("ephemeralContainers")
	if isMirror(old) {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods do not support ephemeral containers")}
	}
	var errs field.ErrorList
	now, seen, volumes := map[string]*corev1.EphemeralContainer{}, map[string]bool{}, map[string]bool{}
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		seen[c.Name] = true
	}
	for _, v := range pod.Spec.Volumes {
		volumes[v.Name] = true
	}
	for i := range pod.Spec.EphemeralContainers {
		c := &pod.Spec.EphemeralContainers[i]
		common := corev1.Container(c.EphemeralContainerCommon)
		now[c.Name] = c
		if target := c.TargetContainerName; target != "" && !hasContainer(&pod.Spec, target) {
			errs = append(errs, field.NotFound(at.Index(i).Child("targetContainerName"), target))
		}
		errs = append(errs, validateContainer(at.Index(i), &common, volumes, seen)...)
		for name, set := range map[string]bool{
			"ports": c.Ports != nil, "resources": len(c.Resources.Limits)+len(c.Resources.Requests) > 0, "lifecycle": c.Lifecycle != nil,
			"livenessProbe": c.LivenessProbe != nil, "readinessProbe": c.ReadinessProbe != nil, "startupProbe": c.StartupProbe != nil,
		} {
			if set {
				errs = append(errs, field.Forbidden(at.Index(i).Child(name), "cannot be set for an Ephemeral Container"))
			}
		}
	}
	for i := range old.Spec.EphemeralContainers {
		was := &old.Spec.EphemeralContainers[i]
		if c, there := now[was.Name]; !there {
			errs = append(errs, field.Forbidden(at, "existing ephemeral containers \""+was.Name+"\" may not be removed\n"))
		} else if !equality.Semantic.DeepEqual(c, was) {
			errs = append(errs, field.Forbidden(at, "existing ephemeral containers \""+was.Name+"\" may not be changed\n"))
		}
	}
	return errs
}

func hasContainer(spec *corev1.PodSpec, name string) bool {
	for _, list := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return true
			}
		}
	}
	return false
}

// PodResizeStrategy is the strategy of pods/resize: it changes the cpu and the memory of
// running containers.
func PodResizeStrategy() lifecycle.Strategy {
	return newPodPart(func(sent, next *corev1.Pod) {
		resizeContainers(sent.Spec.Containers, next.Spec.Containers)
		resizeContainers(sent.Spec.InitContainers, next.Spec.InitContainers)
		if sent.Spec.Resources != nil {
			next.Spec.Resources = sent.Spec.Resources
		}
	}, validateResize)
}

// resizeContainers moves what a resize may change, by the containers' names.
func resizeContainers(sent, next []corev1.Container) {
	for i := range next {
		for j := range sent {
			if sent[j].Name == next[i].Name {
				next[i].Resources, next[i].ResizePolicy = sent[j].Resources, sent[j].ResizePolicy
			}
		}
	}
}

func validateResize(pod, old *corev1.Pod) field.ErrorList {
	root := field.NewPath("")
	switch {
	case isMirror(old):
		return field.ErrorList{field.Forbidden(root, "static pods cannot be resized")}
	case old.Spec.OS != nil && old.Spec.OS.Name == corev1.Windows:
		return field.ErrorList{field.Forbidden(root, "windows pods cannot be resized")}
	}
	errs := validatePodSpec(specPath, &pod.Spec)
	if class := qosClass(&pod.Spec); class != qosClass(&old.Spec) {
		errs = append(errs, field.Invalid(specPath, class, "Pod QOS Class may not change as a result of resizing"))
	}
	for _, list := range []struct {
		name     string
		now, was []corev1.Container
	}{{"containers", pod.Spec.Containers, old.Spec.Containers}, {"initContainers", pod.Spec.InitContainers, old.Spec.InitContainers}} {
		for i := range list.now {
			at := specPath.Child(list.name).Index(i).Child("resources")
			errs = append(errs, validateResourcesResize(at.Child("requests"), list.now[i].Resources.Requests, list.was[i].Resources.Requests)...)
			errs = append(errs, validateResourcesResize(at.Child("limits"), list.now[i].Resources.Limits, list.was[i].Resources.Limits)...)
		}
	}
	return errs
}

// validateResourcesResize allows other amounts of cpu and memory, but not their removal.
func validateResourcesResize(at *field.Path, now, was corev1.ResourceList) field.ErrorList {
	var errs field.ErrorList
	for _, name := range sortedKeys(was) {
		if _, still := now[name]; !still {
			errs = append(errs, field.Forbidden(at.Key(string(name)), "cpu and memory cannot be removed"))
		}
	}
	for _, name := range sortedKeys(now) {
		before, known := was[name]
		amount := now[name]
		if name != corev1.ResourceCPU && name != corev1.ResourceMemory && (!known || amount.Cmp(before) != 0) {
			errs = append(errs, field.Forbidden(specPath, "only cpu and memory resources are mutable"))
		}
	}
	return errs
}
