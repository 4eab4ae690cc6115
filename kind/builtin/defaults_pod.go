package builtin

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func addPodDefaults(s *runtime.Scheme) {
	defaults(s, defaultPod)
	defaults(s, func(t *corev1.PodTemplate) { defaultPodSpec(&t.Template.Spec) })
}

// defaultPod sets the defaults of a Pod only. Templates stay as their authors wrote them,
// because controllers compare them.
func defaultPod(pod *corev1.Pod) {
	defaultPodSpec(&pod.Spec)
	spec := &pod.Spec
	if *spec.TerminationGracePeriodSeconds < 0 {
		*spec.TerminationGracePeriodSeconds = 1
	}
	fillPtr(&spec.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	for _, list := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range list {
			requestsFromLimits(&list[i].Resources)
			if spec.HostNetwork {
				for j := range list[i].Ports {
					fill(&list[i].Ports[j].HostPort, list[i].Ports[j].ContainerPort)
				}
			}
		}
	}
	defaultPodIPs(&pod.Status)
}

// requestsFromLimits sets a missing request to its limit.
func requestsFromLimits(r *corev1.ResourceRequirements) {
	for name, limit := range r.Limits {
		if _, set := r.Requests[name]; set {
			continue
		}
		if r.Requests == nil {
			r.Requests = corev1.ResourceList{}
		}
		r.Requests[name] = limit.DeepCopy()
	}
}

// defaultPodIPs keeps podIP and podIPs[0] equal; podIP has priority.
func defaultPodIPs(status *corev1.PodStatus) {
	switch {
	case status.PodIP == "" && len(status.PodIPs) > 0:
		status.PodIP = status.PodIPs[0].IP
	case status.PodIP != "" && (len(status.PodIPs) == 0 || status.PodIPs[0].IP != status.PodIP):
		status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	}
}

func defaultPodSpec(spec *corev1.PodSpec) {
	// The old and the new name of the field are kept equal; the new one has priority.
	fill(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	fill(&spec.DNSPolicy, corev1.DNSClusterFirst)
	fill(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	fill(&spec.SchedulerName, corev1.DefaultSchedulerName)
	fillPtr(&spec.SecurityContext, corev1.PodSecurityContext{})
	fillPtr(&spec.TerminationGracePeriodSeconds, int64(corev1.DefaultTerminationGracePeriodSeconds))
	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i])
	}
	for i := range spec.InitContainers {
		defaultContainer(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		defaultContainer(&spec.Containers[i])
	}
	for i := range spec.EphemeralContainers {
		defaultContainer((*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
}

func defaultContainer(c *corev1.Container) {
	fill(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	fill(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	fill(&c.ImagePullPolicy, pullPolicy(c.Image))
	for i := range c.Ports {
		fill(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.FieldRef != nil {
			fill(&from.FieldRef.APIVersion, "v1")
		}
	}
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		defaultProbe(probe)
	}
	if c.Lifecycle == nil {
		return
	}
	for _, handler := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
		if handler != nil {
			defaultHTTPGet(handler.HTTPGet)
		}
	}
}

func defaultProbe(probe *corev1.Probe) {
	if probe == nil {
		return
	}
	fill(&probe.TimeoutSeconds, 1)
	fill(&probe.PeriodSeconds, 10)
	fill(&probe.SuccessThreshold, 1)
	fill(&probe.FailureThreshold, 3)
	defaultHTTPGet(probe.HTTPGet)
	if probe.GRPC != nil {
		fillPtr(&probe.GRPC.Service, "")
	}
}

func defaultHTTPGet(get *corev1.HTTPGetAction) {
	if get != nil {
		fill(&get.Path, "/")
		fill(&get.Scheme, corev1.URISchemeHTTP)
	}
}

// pullPolicy is Always for the tag "latest", explicit or implied, since that tag changes. A
// digest without a tag does not change.
func pullPolicy(image string) corev1.PullPolicy {
	name, _, hasDigest := strings.Cut(image, "@")
	last := name[strings.LastIndex(name, "/")+1:]
	_, tag, hasTag := strings.Cut(last, ":")
	if tag == "latest" || (image != "" && !hasTag && !hasDigest) {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

func defaultVolume(v *corev1.Volume) {
	if v.VolumeSource == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	if v.Secret != nil {
		fillPtr(&v.Secret.DefaultMode, corev1.SecretVolumeSourceDefaultMode)
	}
	if v.ConfigMap != nil {
		fillPtr(&v.ConfigMap.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode)
	}
	if v.DownwardAPI != nil {
		fillPtr(&v.DownwardAPI.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode)
		defaultDownwardFiles(v.DownwardAPI.Items)
	}
	if v.HostPath != nil {
		fillPtr(&v.HostPath.Type, corev1.HostPathUnset)
	}
	if v.Image != nil {
		fill(&v.Image.PullPolicy, pullPolicy(v.Image.Reference))
	}
	if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
		fillPtr(&v.Ephemeral.VolumeClaimTemplate.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	}
	if v.Projected != nil {
		defaultProjected(v.Projected)
	}
}

func defaultProjected(p *corev1.ProjectedVolumeSource) {
	fillPtr(&p.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
	for i := range p.Sources {
		if token := p.Sources[i].ServiceAccountToken; token != nil {
			fillPtr(&token.ExpirationSeconds, int64(3600))
		}
		if api := p.Sources[i].DownwardAPI; api != nil {
			defaultDownwardFiles(api.Items)
		}
	}
}

func defaultDownwardFiles(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		if ref := items[i].FieldRef; ref != nil {
			fill(&ref.APIVersion, "v1")
		}
	}
}
