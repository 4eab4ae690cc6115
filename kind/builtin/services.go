package builtin

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/registry/core/service"

	"github.com/exeunt/exeunt/kind"
)

func serviceDef() def {
	return def{
		obj: &corev1.Service{}, plural: "services", short: []string{"svc"}, all: true, returnsDeleted: true,
		strategy: service.Strategy, status: service.StatusStrategy,
		forgives: func(err *field.Error) bool { // Services' attach sets it after validation
			return err.Type == field.ErrorTypeRequired && err.Field == "spec.healthCheckNodePort"
		},
		prepare: hook(func(svc, old *corev1.Service) {
			if old != nil {
				keepClusterIP(&svc.Spec, &old.Spec)
			}
			mirrorClusterIP(&svc.Spec)
			if old != nil {
				keepNodePorts(&svc.Spec, &old.Spec)
			}
		}),
	}
}

// mirrorClusterIP fills clusterIPs from clusterIP, which is the only one that older
// clients set.
func mirrorClusterIP(spec *corev1.ServiceSpec) {
	if spec.ClusterIP != "" && len(spec.ClusterIPs) == 0 {
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
}

// keepClusterIP keeps the stored address if the client omits it.
func keepClusterIP(spec, old *corev1.ServiceSpec) {
	if spec.Type == corev1.ServiceTypeExternalName || old.Type == corev1.ServiceTypeExternalName {
		return
	}
	if spec.ClusterIP == "" && len(spec.ClusterIPs) == 0 {
		spec.ClusterIP, spec.ClusterIPs = old.ClusterIP, old.ClusterIPs
	}
}

// Services returns the kind Service with a source of addresses, for a server that gives
// them. It replaces the one of Kinds in a registry.
func Services(attach func(ctx context.Context, obj, old runtime.Object) (kind.Attachment, error)) *kind.Kind {
	k := serviceDef().kind()
	k.Attach = attach
	return k
}

// isLoopback forgives an endpoint on loopback: there need not be other machines here, and
// webhooks behind a Service may run beside the server.
func isLoopback(err *field.Error) bool {
	return strings.HasPrefix(err.Detail, "may not be in the loopback range")
}

func hasNodePorts(spec *corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeNodePort || spec.Type == corev1.ServiceTypeLoadBalancer
}

// hasHealthCheckPort reports whether a load balancer asks the nodes which of them have a pod.
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
