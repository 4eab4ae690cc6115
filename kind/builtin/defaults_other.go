package builtin

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func addOtherDefaults(s *runtime.Scheme) {
	defaults(s, func(b *rbacv1.RoleBinding) { defaultBinding(&b.RoleRef, b.Subjects) })
	defaults(s, func(b *rbacv1.ClusterRoleBinding) { defaultBinding(&b.RoleRef, b.Subjects) })
	defaults(s, func(c *schedulingv1.PriorityClass) {
		fillPtr(&c.PreemptionPolicy, corev1.PreemptLowerPriority)
	})
	defaults(s, func(c *storagev1.StorageClass) {
		fillPtr(&c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
		fillPtr(&c.VolumeBindingMode, storagev1.VolumeBindingImmediate)
	})
	defaults(s, func(e *discoveryv1.EndpointSlice) {
		for i := range e.Ports {
			fillPtr(&e.Ports[i].Name, "")
			fillPtr(&e.Ports[i].Protocol, corev1.ProtocolTCP)
		}
	})
	defaults(s, defaultNetworkPolicy)
	defaults(s, defaultAutoscaler)
}

func defaultBinding(ref *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	fill(&ref.APIGroup, rbacv1.GroupName)
	for i := range subjects {
		if subjects[i].Kind == rbacv1.UserKind || subjects[i].Kind == rbacv1.GroupKind {
			fill(&subjects[i].APIGroup, rbacv1.GroupName)
		}
	}
}

func defaultNetworkPolicy(p *networkingv1.NetworkPolicy) {
	for _, rule := range p.Spec.Ingress {
		defaultPolicyPorts(rule.Ports)
	}
	for _, rule := range p.Spec.Egress {
		defaultPolicyPorts(rule.Ports)
	}
	// A policy without types applies to ingress, and to egress only if it has egress
	// rules.
	if len(p.Spec.PolicyTypes) == 0 {
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(p.Spec.Egress) > 0 {
			p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
}

func defaultPolicyPorts(ports []networkingv1.NetworkPolicyPort) {
	for i := range ports {
		fillPtr(&ports[i].Protocol, corev1.ProtocolTCP)
	}
}

func defaultAutoscaler(h *autoscalingv2.HorizontalPodAutoscaler) {
	fillPtr(&h.Spec.MinReplicas, 1)
	if len(h.Spec.Metrics) == 0 {
		target := autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType}
		fillPtr(&target.AverageUtilization, 80)
		h.Spec.Metrics = []autoscalingv2.MetricSpec{{
			Type:     autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU, Target: target},
		}}
	}
	if h.Spec.Behavior == nil {
		return
	}
	percent := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15}
	pods := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15}
	fillPtr(&h.Spec.Behavior.ScaleUp, autoscalingv2.HPAScalingRules{})
	fillPtr(&h.Spec.Behavior.ScaleUp.StabilizationWindowSeconds, 0)
	defaultScaling(h.Spec.Behavior.ScaleUp, pods, percent)
	fillPtr(&h.Spec.Behavior.ScaleDown, autoscalingv2.HPAScalingRules{})
	defaultScaling(h.Spec.Behavior.ScaleDown, percent)
}

func defaultScaling(rules *autoscalingv2.HPAScalingRules, policies ...autoscalingv2.HPAScalingPolicy) {
	fillPtr(&rules.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if rules.Policies == nil {
		rules.Policies = policies
	}
}
