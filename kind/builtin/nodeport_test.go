package builtin

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// TestKeepNodePorts: what a client omits stays while the type has it, and leaves with the type; what it sends stays.
func TestKeepNodePorts(t *testing.T) {
	const node, balancer, cluster = corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeClusterIP
	ports := func(named ...any) (out []corev1.ServicePort) {
		for i := 0; i < len(named); i += 2 {
			out = append(out, corev1.ServicePort{Name: named[i].(string), NodePort: int32(named[i+1].(int))})
		}
		return out
	}
	local := func(health int32) func(*corev1.ServiceSpec) {
		return func(s *corev1.ServiceSpec) {
			s.ExternalTrafficPolicy, s.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, health
		}
	}
	allocates := func(yes bool) func(*corev1.ServiceSpec) {
		return func(s *corev1.ServiceSpec) { s.AllocateLoadBalancerNodePorts = &yes }
	}
	spec := func(kind corev1.ServiceType, ports []corev1.ServicePort, changes ...func(*corev1.ServiceSpec)) corev1.ServiceSpec {
		s := corev1.ServiceSpec{Type: kind, Ports: ports}
		for _, change := range changes {
			change(&s)
		}
		return s
	}
	for name, test := range map[string]struct{ old, sent, want corev1.ServiceSpec }{
		"omitted":            {spec(node, ports("a", 1, "b", 2)), spec(node, ports("b", 0, "a", 0)), spec(node, ports("b", 2, "a", 1))},
		"sent":               {spec(node, ports("a", 1, "b", 2)), spec(node, ports("a", 7, "b", 0)), spec(node, ports("a", 7, "b", 2))},
		"a new port":         {spec(node, ports("a", 1)), spec(node, ports("a", 0, "b", 0)), spec(node, ports("a", 1, "b", 0))},
		"taken by another":   {spec(node, ports("a", 1, "b", 2)), spec(node, ports("a", 2, "b", 0)), spec(node, ports("a", 2, "b", 0))},
		"to a load balancer": {spec(node, ports("a", 1)), spec(balancer, ports("a", 0)), spec(balancer, ports("a", 1))},
		"to a cluster IP":    {spec(node, ports("a", 1, "b", 2)), spec(cluster, ports("a", 1, "b", 0)), spec(cluster, ports("a", 0, "b", 0))},
		"to a cluster IP, with another port, which validation refuses": {spec(node, ports("a", 1)), spec(cluster, ports("a", 7)), spec(cluster, ports("a", 7))},
		"from a cluster IP": {spec(cluster, ports("a", 0)), spec(node, ports("a", 5)), spec(node, ports("a", 5))},

		"health, omitted":         {spec(balancer, nil, local(8)), spec(balancer, nil, local(0)), spec(balancer, nil, local(8))},
		"health, sent":            {spec(balancer, nil, local(8)), spec(balancer, nil, local(9)), spec(balancer, nil, local(9))},
		"health, to another type": {spec(balancer, nil, local(8)), spec(node, nil, local(8)), spec(node, nil, local(0))},
		"health, another port":    {spec(balancer, nil, local(8)), spec(node, nil, local(9)), spec(node, nil, local(9))},
		"health, new":             {spec(node, nil), spec(balancer, nil, local(0)), spec(balancer, nil, local(0))},

		"allocation, to another type": {spec(balancer, nil, allocates(true)), spec(node, nil, allocates(true)), spec(node, nil)},
		"allocation, changed too":     {spec(balancer, nil, allocates(true)), spec(node, nil, allocates(false)), spec(node, nil, allocates(false))},
		"allocation, the same type":   {spec(balancer, nil, allocates(true)), spec(balancer, nil, allocates(true)), spec(balancer, nil, allocates(true))},
		"allocation, none before":     {spec(balancer, nil), spec(node, nil, allocates(true)), spec(node, nil, allocates(true))},
	} {
		got := *test.sent.DeepCopy()
		keepNodePorts(&got, &test.old)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}
