package builtin

import (
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	defaults(s, func(h *autoscalingv1.HorizontalPodAutoscaler) { fillPtr(&h.Spec.MinReplicas, 1) })
	defaults(s, defaultCSIDriver)
	defaults(s, func(c *networkingv1.IngressClass) {
		if c.Spec.Parameters != nil {
			fillPtr(&c.Spec.Parameters.Scope, networkingv1.IngressClassParametersReferenceScopeCluster)
		}
	})
	defaults(s, func(r *certificatesv1.PodCertificateRequest) { fillPtr(&r.Spec.MaxExpirationSeconds, 24*60*60) })
	addFlowDefaults(s)
	addDeviceDefaults(s)
}

func defaultCSIDriver(d *storagev1.CSIDriver) {
	fillPtr(&d.Spec.AttachRequired, true)
	fillPtr(&d.Spec.PodInfoOnMount, false)
	fillPtr(&d.Spec.StorageCapacity, false)
	fillPtr(&d.Spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	fillPtr(&d.Spec.RequiresRepublish, false)
	fillPtr(&d.Spec.SELinuxMount, false)
	fillPtr(&d.Spec.PreventPodSchedulingIfMissing, false)
	if len(d.Spec.VolumeLifecycleModes) == 0 {
		d.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
}

func addFlowDefaults(s *runtime.Scheme) {
	defaults(s, func(f *flowcontrolv1.FlowSchema) { fill(&f.Spec.MatchingPrecedence, 1000) })
	defaults(s, func(c *flowcontrolv1.PriorityLevelConfiguration) {
		if e := c.Spec.Exempt; e != nil {
			fillPtr(&e.NominalConcurrencyShares, 0)
			fillPtr(&e.LendablePercent, 0)
		}
		if l := c.Spec.Limited; l != nil {
			fillPtr(&l.NominalConcurrencyShares, 30)
			fillPtr(&l.LendablePercent, 0)
			if q := l.LimitResponse.Queuing; q != nil {
				fill(&q.HandSize, 8)
				fill(&q.Queues, 64)
				fill(&q.QueueLengthLimit, 50)
			}
		}
	})
}

func addDeviceDefaults(s *runtime.Scheme) {
	defaults(s, func(c *resourcev1.ResourceClaim) { defaultDeviceClaim(&c.Spec.Devices) })
	defaults(s, func(t *resourcev1.ResourceClaimTemplate) { defaultDeviceClaim(&t.Spec.Spec.Devices) })
	// A taint carries the time at which it was added, to the second.
	added := func(t *resourcev1.DeviceTaint) {
		if t.TimeAdded == nil {
			t.TimeAdded = &metav1.Time{Time: time.Now().Truncate(time.Second)}
		}
	}
	defaults(s, func(r *resourcev1.DeviceTaintRule) { added(&r.Spec.Taint) })
	defaults(s, func(slice *resourcev1.ResourceSlice) {
		for i := range slice.Spec.Devices {
			for j := range slice.Spec.Devices[i].Taints {
				added(&slice.Spec.Devices[i].Taints[j])
			}
		}
	})
}

func defaultDeviceClaim(c *resourcev1.DeviceClaim) {
	count := func(mode *resourcev1.DeviceAllocationMode, n *int64) {
		if fill(mode, resourcev1.DeviceAllocationModeExactCount); *mode == resourcev1.DeviceAllocationModeExactCount {
			fill(n, 1)
		}
	}
	for i := range c.Requests {
		r := &c.Requests[i]
		if r.Exactly != nil {
			count(&r.Exactly.AllocationMode, &r.Exactly.Count)
		}
		for j := range r.FirstAvailable {
			count(&r.FirstAvailable[j].AllocationMode, &r.FirstAvailable[j].Count)
		}
	}
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
		h.Spec.Metrics = []autoscalingv2.MetricSpec{cpuTarget(defaultCPUTarget)}
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
