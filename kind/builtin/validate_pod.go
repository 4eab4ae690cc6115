package builtin

import (
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validatePod(pod *corev1.Pod) field.ErrorList {
	return validatePodSpec(field.NewPath("spec"), &pod.Spec)
}

func validatePodTemplate(t *corev1.PodTemplate) field.ErrorList {
	return validateTemplate(field.NewPath("template"), &t.Template)
}

// validateTemplate validates a template by the rules for its pods.
func validateTemplate(path *field.Path, t *corev1.PodTemplateSpec) field.ErrorList {
	errs := metav1validation.ValidateLabels(t.Labels, path.Child("metadata", "labels"))
	return append(errs, validatePodSpec(path.Child("spec"), &t.Spec)...)
}

func validatePodSpec(path *field.Path, spec *corev1.PodSpec) field.ErrorList {
	volumes, errs := validateVolumes(path.Child("volumes"), spec.Volumes)
	seen := map[string]bool{}
	if len(spec.Containers) == 0 {
		errs = append(errs, field.Required(path.Child("containers"), ""))
	}
	for _, list := range []struct {
		name       string
		containers []corev1.Container
	}{{"containers", spec.Containers}, {"initContainers", spec.InitContainers}} {
		for i := range list.containers {
			errs = append(errs, validateContainer(path.Child(list.name).Index(i), &list.containers[i], volumes, seen)...)
		}
	}
	errs = append(errs, oneOf(path.Child("restartPolicy"), spec.RestartPolicy,
		corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)...)
	errs = append(errs, oneOf(path.Child("dnsPolicy"), spec.DNSPolicy,
		corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet, corev1.DNSDefault, corev1.DNSNone)...)
	errs = append(errs, metav1validation.ValidateLabels(spec.NodeSelector, path.Child("nodeSelector"))...)
	errs = append(errs, notNegative(path.Child("terminationGracePeriodSeconds"), spec.TerminationGracePeriodSeconds)...)
	if seconds := spec.ActiveDeadlineSeconds; seconds != nil && (*seconds < 1 || *seconds > math.MaxInt32) {
		errs = append(errs, field.Invalid(path.Child("activeDeadlineSeconds"), *seconds, validation.InclusiveRangeError(1, math.MaxInt32)))
	}
	for name, check := range map[string]struct {
		value string
		rule  func(string) []string
	}{
		"serviceAccountName": {spec.ServiceAccountName, validation.IsDNS1123Subdomain},
		"nodeName":           {spec.NodeName, validation.IsDNS1123Subdomain},
		"priorityClassName":  {spec.PriorityClassName, validation.IsDNS1123Subdomain},
		"hostname":           {spec.Hostname, validation.IsDNS1123Label},
		"subdomain":          {spec.Subdomain, validation.IsDNS1123Label},
	} {
		if check.value != "" {
			errs = append(errs, invalids(path.Child(name), check.value, check.rule(check.value))...)
		}
	}
	return append(errs, validateTolerations(path.Child("tolerations"), spec.Tolerations)...)
}

// validateContainer validates a container. Names are unique among the containers and init
// containers of a pod: seen holds the earlier names.
func validateContainer(path *field.Path, c *corev1.Container, volumes, seen map[string]bool) field.ErrorList {
	errs := requiredName(path.Child("name"), c.Name, validation.IsDNS1123Label)
	duplicate := seen[c.Name]
	seen[c.Name] = true
	switch {
	case c.Image == "":
		errs = append(errs, field.Required(path.Child("image"), ""))
	case strings.TrimSpace(c.Image) != c.Image:
		errs = append(errs, field.Invalid(path.Child("image"), c.Image, "must not have leading or trailing whitespace"))
	}
	errs = append(errs, oneOf(path.Child("imagePullPolicy"), c.ImagePullPolicy,
		corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)...)
	errs = append(errs, oneOf(path.Child("terminationMessagePolicy"), c.TerminationMessagePolicy,
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)...)
	errs = append(errs, validateContainerPorts(path.Child("ports"), c.Ports)...)
	errs = append(errs, validateEnv(path, c)...)
	errs = append(errs, validateMounts(path.Child("volumeMounts"), c.VolumeMounts, volumes)...)
	errs = append(errs, validateResources(path.Child("resources"), &c.Resources)...)
	if duplicate {
		errs = append(errs, field.Duplicate(path.Child("name"), c.Name))
	}
	errs = append(errs, validateProbe(path.Child("livenessProbe"), c.LivenessProbe)...)
	errs = append(errs, validateProbe(path.Child("readinessProbe"), c.ReadinessProbe)...)
	return append(errs, validateProbe(path.Child("startupProbe"), c.StartupProbe)...)
}

func validateContainerPorts(path *field.Path, ports []corev1.ContainerPort) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, p := range ports {
		at := path.Index(i)
		if p.Name != "" {
			errs = append(errs, invalids(at.Child("name"), p.Name, validation.IsValidPortName(p.Name))...)
			if seen[p.Name] {
				errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
			}
			seen[p.Name] = true
		}
		if p.ContainerPort == 0 {
			errs = append(errs, field.Required(at.Child("containerPort"), ""))
		} else {
			errs = append(errs, portNumber(at.Child("containerPort"), p.ContainerPort)...)
		}
		if p.HostPort != 0 {
			errs = append(errs, portNumber(at.Child("hostPort"), p.HostPort)...)
		}
		errs = append(errs, validateProtocol(at.Child("protocol"), p.Protocol)...)
	}
	return errs
}

func validateProtocol(path *field.Path, p corev1.Protocol) field.ErrorList {
	return oneOf(path, p, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
}

func validateEnv(path *field.Path, c *corev1.Container) field.ErrorList {
	var errs field.ErrorList
	for i, e := range c.Env {
		at := path.Child("env").Index(i)
		errs = append(errs, requiredName(at.Child("name"), e.Name, validation.IsRelaxedEnvVarName)...)
		if e.ValueFrom == nil {
			continue
		}
		if e.Value != "" {
			errs = append(errs, field.Invalid(at.Child("valueFrom"), "", "may not be specified when `value` is not empty"))
		}
		errs = append(errs, validateEnvSource(at.Child("valueFrom"), e.ValueFrom)...)
	}
	return errs
}

func validateEnvSource(path *field.Path, from *corev1.EnvVarSource) field.ErrorList {
	var errs field.ErrorList
	sources := 0
	if from.FieldRef != nil {
		sources++
		errs = append(errs, required(path.Child("fieldRef", "fieldPath"), from.FieldRef.FieldPath)...)
	}
	if from.ResourceFieldRef != nil {
		sources++
		errs = append(errs, required(path.Child("resourceFieldRef", "resource"), from.ResourceFieldRef.Resource)...)
	}
	if from.ConfigMapKeyRef != nil {
		sources++
		errs = append(errs, requiredName(path.Child("configMapKeyRef", "key"), from.ConfigMapKeyRef.Key, validation.IsConfigMapKey)...)
	}
	if from.SecretKeyRef != nil {
		sources++
		errs = append(errs, requiredName(path.Child("secretKeyRef", "key"), from.SecretKeyRef.Key, validation.IsConfigMapKey)...)
	}
	if from.FileKeyRef != nil {
		sources++
	}
	switch {
	case sources == 0:
		errs = append(errs, field.Invalid(path, "", "must specify one source of the value"))
	case sources > 1:
		errs = append(errs, field.Invalid(path, "", "may not have more than one source of the value"))
	}
	return errs
}

func validateVolumes(path *field.Path, volumes []corev1.Volume) (map[string]bool, field.ErrorList) {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, v := range volumes {
		errs = append(errs, requiredName(path.Index(i).Child("name"), v.Name, validation.IsDNS1123Label)...)
		if seen[v.Name] {
			errs = append(errs, field.Duplicate(path.Index(i).Child("name"), v.Name))
		}
		seen[v.Name] = true
	}
	return seen, errs
}

func validateMounts(path *field.Path, mounts []corev1.VolumeMount, volumes map[string]bool) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, m := range mounts {
		at := path.Index(i)
		if m.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		} else if !volumes[m.Name] {
			errs = append(errs, field.NotFound(at.Child("name"), m.Name))
		}
		errs = append(errs, required(at.Child("mountPath"), m.MountPath)...)
		if seen[m.MountPath] {
			errs = append(errs, field.Invalid(at.Child("mountPath"), m.MountPath, "must be unique"))
		}
		seen[m.MountPath] = true
	}
	return errs
}

func validateResources(path *field.Path, r *corev1.ResourceRequirements) field.ErrorList {
	var errs field.ErrorList
	for _, name := range sortedKeys(r.Limits) {
		errs = append(errs, quantityNotNegative(path.Child("limits").Key(string(name)), r.Limits[name])...)
	}
	for _, name := range sortedKeys(r.Requests) {
		request, at := r.Requests[name], path.Child("requests").Key(string(name))
		errs = append(errs, quantityNotNegative(at, request)...)
		if limit, set := r.Limits[name]; set && request.Cmp(limit) > 0 {
			errs = append(errs, field.Invalid(at, request.String(), "must be less than or equal to "+string(name)+" limit of "+limit.String()))
		}
	}
	return errs
}

func validateProbe(path *field.Path, p *corev1.Probe) field.ErrorList {
	if p == nil {
		return nil
	}
	var errs field.ErrorList
	for _, n := range []struct {
		name  string
		value *int32
	}{
		{"initialDelaySeconds", &p.InitialDelaySeconds}, {"timeoutSeconds", &p.TimeoutSeconds},
		{"periodSeconds", &p.PeriodSeconds}, {"successThreshold", &p.SuccessThreshold}, {"failureThreshold", &p.FailureThreshold},
	} {
		errs = append(errs, notNegative(path.Child(n.name), n.value)...)
	}
	handlers := 0
	for _, set := range []bool{p.Exec != nil, p.HTTPGet != nil, p.TCPSocket != nil, p.GRPC != nil} {
		if set {
			handlers++
		}
	}
	if handlers == 0 {
		errs = append(errs, field.Required(path, "must specify a handler type"))
	} else if handlers > 1 {
		errs = append(errs, field.Forbidden(path, "may not specify more than 1 handler type"))
	}
	if p.HTTPGet != nil {
		errs = append(errs, portOrName(path.Child("httpGet", "port"), p.HTTPGet.Port)...)
	}
	if p.TCPSocket != nil {
		errs = append(errs, portOrName(path.Child("tcpSocket", "port"), p.TCPSocket.Port)...)
	}
	return errs
}

func validateTolerations(path *field.Path, tolerations []corev1.Toleration) field.ErrorList {
	var errs field.ErrorList
	for i, t := range tolerations {
		at := path.Index(i)
		if t.Key != "" {
			errs = append(errs, invalids(at.Child("key"), t.Key, validation.IsQualifiedName(t.Key))...)
		} else if t.Operator != corev1.TolerationOpExists {
			errs = append(errs, field.Invalid(at.Child("operator"), t.Operator, "operator must be Exists when `key` is empty, which means \"match all values and all keys\""))
		}
		if t.Effect != "" {
			errs = append(errs, oneOf(at.Child("effect"), t.Effect,
				corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)...)
		}
		if t.Operator == corev1.TolerationOpExists && t.Value != "" {
			errs = append(errs, field.Invalid(at.Child("operator"), t.Operator, "value must be empty when `operator` is 'Exists'"))
		}
	}
	return errs
}

// validatePodUpdate allows the changes that a running pod supports: images, a shorter
// deadline, additional tolerations, removed scheduling gates.
func validatePodUpdate(pod, old *corev1.Pod) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateDeadlineUpdate(path.Child("activeDeadlineSeconds"), pod.Spec.ActiveDeadlineSeconds, old.Spec.ActiveDeadlineSeconds)
	errs = append(errs, validateTolerationsUpdate(path.Child("tolerations"), pod.Spec.Tolerations, old.Spec.Tolerations)...)
	errs = append(errs, validateGatesUpdate(path.Child("schedulingGates"), pod.Spec.SchedulingGates, old.Spec.SchedulingGates)...)
	if equality.Semantic.DeepEqual(pod.Spec, old.Spec) {
		return errs
	}
	rest := pod.Spec.DeepCopy()
	if len(rest.Containers) != len(old.Spec.Containers) || len(rest.InitContainers) != len(old.Spec.InitContainers) {
		return append(errs, field.Forbidden(path, "pod updates may not add or remove containers"))
	}
	for i := range rest.Containers {
		rest.Containers[i].Image = old.Spec.Containers[i].Image
	}
	for i := range rest.InitContainers {
		rest.InitContainers[i].Image = old.Spec.InitContainers[i].Image
	}
	rest.ActiveDeadlineSeconds = old.Spec.ActiveDeadlineSeconds
	rest.Tolerations = old.Spec.Tolerations
	rest.SchedulingGates = old.Spec.SchedulingGates
	if !equality.Semantic.DeepEqual(*rest, old.Spec) {
		errs = append(errs, field.Forbidden(path, "pod updates may not change fields other than `spec.containers[*].image`,"+
			"`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"+
			"`spec.schedulingGates` (only removals)"))
	}
	return errs
}

func validateDeadlineUpdate(path *field.Path, seconds, old *int64) field.ErrorList {
	switch {
	case old == nil:
		return nil
	case seconds == nil:
		return field.ErrorList{field.Invalid(path, seconds, "must not update from a positive integer to nil value")}
	case *seconds > *old:
		return field.ErrorList{field.Invalid(path, *seconds, "must be less than or equal to previous value")}
	}
	return nil
}

// validateTolerationsUpdate requires that each old toleration is still there; only its
// duration may change.
func validateTolerationsUpdate(path *field.Path, tolerations, old []corev1.Toleration) field.ErrorList {
	for _, o := range old {
		o.TolerationSeconds = nil
		found := false
		for _, t := range tolerations {
			t.TolerationSeconds = nil
			found = found || equality.Semantic.DeepEqual(t, o)
		}
		if !found {
			return field.ErrorList{field.Forbidden(path, "existing toleration can not be modified except its tolerationSeconds")}
		}
	}
	return nil
}

func validateGatesUpdate(path *field.Path, gates, old []corev1.PodSchedulingGate) field.ErrorList {
	known := map[string]bool{}
	for _, g := range old {
		known[g.Name] = true
	}
	var errs field.ErrorList
	for i, g := range gates {
		if !known[g.Name] {
			errs = append(errs, field.Forbidden(path.Index(i), "only deletion is allowed, but found new scheduling gate '"+g.Name+"'"))
		}
	}
	return errs
}
