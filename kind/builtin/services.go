package builtin

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/exeunt/exeunt/kind"
)

// Services returns the kind Service with a source of addresses, for a server that gives
// them. It replaces the one of Kinds in a registry.
func Services(attach func(ctx context.Context, obj, old runtime.Object) (kind.Attachment, error)) *kind.Kind {
	k := serviceDef().kind()
	k.Attach = attach
	return k
}

func hasNodePorts(spec *corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeNodePort || spec.Type == corev1.ServiceTypeLoadBalancer
}

// hasHealthCheckPort says whether a load balancer asks the nodes which of them have a pod.
func hasHealthCheckPort(spec *corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeLoadBalancer && spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// keepNodePorts keeps the node ports of the ports that have the same name, if the client
// omits them. If the new type has none, it removes those that the client did not change.
func keepNodePorts(spec, old *corev1.ServiceSpec) {
	var had, sent []int32
	byName := map[string]int32{}
	for _, p := range old.Ports {
		had, byName[p.Name] = append(had, p.NodePort), p.NodePort
	}
	for _, p := range spec.Ports {
		sent = append(sent, p.NodePort)
	}
	for i := range spec.Ports {
		p := &spec.Ports[i]
		switch {
		case !hasNodePorts(old):
		case !hasNodePorts(spec) && slices.Contains(had, p.NodePort):
			p.NodePort = 0
		case hasNodePorts(spec) && p.NodePort == 0 && !slices.Contains(sent, byName[p.Name]):
			p.NodePort = byName[p.Name]
		}
	}
	switch {
	case !hasHealthCheckPort(old):
	case !hasHealthCheckPort(spec) && spec.HealthCheckNodePort == old.HealthCheckNodePort:
		spec.HealthCheckNodePort = 0
	case hasHealthCheckPort(spec) && spec.HealthCheckNodePort == 0:
		spec.HealthCheckNodePort = old.HealthCheckNodePort
	}
	if old.Type == corev1.ServiceTypeLoadBalancer && spec.Type != corev1.ServiceTypeLoadBalancer && spec.AllocateLoadBalancerNodePorts != nil &&
		old.AllocateLoadBalancerNodePorts != nil && *spec.AllocateLoadBalancerNodePorts == *old.AllocateLoadBalancerNodePorts {
		spec.AllocateLoadBalancerNodePorts = nil
	}
}
