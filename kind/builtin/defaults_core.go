package builtin

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func addCoreDefaults(s *runtime.Scheme) {
	defaults(s, defaultNamespace)
	defaults(s, defaultSecret)
	defaults(s, defaultService)
	defaults(s, defaultReplicationController)
	defaults(s, defaultLimitRange)
	defaults(s, func(e *corev1.Endpoints) {
		for i := range e.Subsets {
			for j := range e.Subsets[i].Ports {
				fill(&e.Subsets[i].Ports[j].Protocol, corev1.ProtocolTCP)
			}
		}
	})
	defaults(s, func(n *corev1.Node) {
		if n.Status.Allocatable == nil && n.Status.Capacity != nil {
			n.Status.Allocatable = n.Status.Capacity.DeepCopy()
		}
		if n.Spec.PodCIDR != "" && len(n.Spec.PodCIDRs) == 0 {
			n.Spec.PodCIDRs = []string{n.Spec.PodCIDR}
		}
	})
	defaults(s, func(v *corev1.PersistentVolume) {
		fill(&v.Status.Phase, corev1.VolumePending)
		fill(&v.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
		fillPtr(&v.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
		if v.Spec.HostPath != nil {
			fillPtr(&v.Spec.HostPath.Type, corev1.HostPathUnset)
		}
	})
	defaults(s, defaultClaim)
}

func defaultClaim(c *corev1.PersistentVolumeClaim) {
	fill(&c.Status.Phase, corev1.ClaimPending)
	fillPtr(&c.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
}

// defaultNamespace adds a label with the namespace's name, for selectors. Canonicalize adds
// it if the name is still to be generated.
func defaultNamespace(ns *corev1.Namespace) {
	fill(&ns.Status.Phase, corev1.NamespaceActive)
	labelNamespace(ns)
}

func labelNamespace(ns *corev1.Namespace) {
	if ns.Name == "" {
		return
	}
	if ns.Labels == nil {
		ns.Labels = map[string]string{}
	}
	ns.Labels[corev1.LabelMetadataName] = ns.Name
}

// defaultSecret moves stringData, which is write-only, into data. It runs before all other
// code, so stringData is never stored.
func defaultSecret(s *corev1.Secret) {
	fill(&s.Type, corev1.SecretTypeOpaque)
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = make(map[string][]byte, len(s.StringData))
	}
	for key, value := range s.StringData {
		s.Data[key] = []byte(value)
	}
	s.StringData = nil
}

func defaultService(svc *corev1.Service) {
	spec := &svc.Spec
	fill(&spec.Type, corev1.ServiceTypeClusterIP)
	fill(&spec.SessionAffinity, corev1.ServiceAffinityNone)
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		fillPtr(&spec.SessionAffinityConfig, corev1.SessionAffinityConfig{})
		fillPtr(&spec.SessionAffinityConfig.ClientIP, corev1.ClientIPConfig{})
		fillPtr(&spec.SessionAffinityConfig.ClientIP.TimeoutSeconds, corev1.DefaultClientIPServiceAffinitySeconds)
	}
	for i := range spec.Ports {
		port := &spec.Ports[i]
		fill(&port.Protocol, corev1.ProtocolTCP)
		if port.TargetPort == intstr.FromInt32(0) || port.TargetPort == intstr.FromString("") {
			port.TargetPort = intstr.FromInt32(port.Port)
		}
	}
	if externallyAccessible(spec) {
		fill(&spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if spec.Type != corev1.ServiceTypeExternalName {
		fillPtr(&spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		fillPtr(&spec.AllocateLoadBalancerNodePorts, true)
		for i := range svc.Status.LoadBalancer.Ingress {
			if ingress := &svc.Status.LoadBalancer.Ingress[i]; ingress.IP != "" {
				fillPtr(&ingress.IPMode, corev1.LoadBalancerIPModeVIP)
			}
		}
	}
}

func externallyAccessible(spec *corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeLoadBalancer || spec.Type == corev1.ServiceTypeNodePort ||
		(spec.Type == corev1.ServiceTypeClusterIP && len(spec.ExternalIPs) > 0)
}

// defaultReplicationController copies selector and labels from the template.
func defaultReplicationController(rc *corev1.ReplicationController) {
	fillPtr(&rc.Spec.Replicas, 1)
	if rc.Spec.Template == nil {
		return
	}
	defaultPodSpec(&rc.Spec.Template.Spec)
	if len(rc.Spec.Selector) == 0 {
		rc.Spec.Selector = maps.Clone(rc.Spec.Template.Labels)
	}
	if len(rc.Labels) == 0 {
		rc.Labels = maps.Clone(rc.Spec.Template.Labels)
	}
}

// defaultLimitRange sets a container's default limit to its maximum, and its default
// request to that limit or else to its minimum.
func defaultLimitRange(l *corev1.LimitRange) {
	for i := range l.Spec.Limits {
		item := &l.Spec.Limits[i]
		if item.Type != corev1.LimitTypeContainer {
			continue
		}
		item.Default = addMissing(item.Default, item.Max)
		item.DefaultRequest = addMissing(addMissing(item.DefaultRequest, item.Default), item.Min)
	}
}

func addMissing(to, from corev1.ResourceList) corev1.ResourceList {
	for name, quantity := range from {
		if _, set := to[name]; set {
			continue
		}
		if to == nil {
			to = corev1.ResourceList{}
		}
		to[name] = quantity.DeepCopy()
	}
	return to
}
