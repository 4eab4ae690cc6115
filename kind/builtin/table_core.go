package builtin

import (
	"net"
	"sort"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func namespaceTable() table[*corev1.Namespace] {
	return table[*corev1.Namespace]{
		columns: columns(text("Status", "Whether the namespace is in use or going.")),
		row: func(n *corev1.Namespace, now time.Time) []any {
			return []any{n.Name, string(n.Status.Phase), age(n, now)}
		},
	}
}

func configMapTable() table[*corev1.ConfigMap] {
	return table[*corev1.ConfigMap]{
		columns: columns(text("Data", "How many keys there are.")),
		row: func(c *corev1.ConfigMap, now time.Time) []any {
			return []any{c.Name, int64(len(c.Data) + len(c.BinaryData)), age(c, now)}
		},
	}
}

func secretTable() table[*corev1.Secret] {
	return table[*corev1.Secret]{
		columns: columns(
			text("Type", "What the secret is for."),
			text("Data", "How many keys there are."),
		),
		row: func(s *corev1.Secret, now time.Time) []any {
			return []any{s.Name, string(s.Type), int64(len(s.Data)), age(s, now)}
		},
	}
}

func serviceTable() table[*corev1.Service] {
	cols := columns(
		text("Type", "How the service is exposed."),
		text("Cluster-IP", "The address within the cluster."),
		text("External-IP", "The addresses from outside."),
		text("Port(s)", "The ports that are served."),
	)
	return table[*corev1.Service]{
		columns: append(cols, wide(text("Selector", "Which pods serve."))),
		row: func(s *corev1.Service, now time.Time) []any {
			ip := s.Spec.ClusterIP
			if len(s.Spec.ClusterIPs) > 0 {
				ip = s.Spec.ClusterIPs[0]
			}
			// "None", the address of a headless service, is shown unchanged.
			return []any{
				s.Name, string(s.Spec.Type), or(ip, none), externalIP(s), or(servicePorts(s.Spec.Ports), none),
				age(s, now), labels.FormatLabels(s.Spec.Selector),
			}
		},
	}
}

func externalIP(s *corev1.Service) string {
	switch s.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
		return or(strings.Join(s.Spec.ExternalIPs, ","), none)
	case corev1.ServiceTypeLoadBalancer:
		var found []string
		for _, ingress := range s.Status.LoadBalancer.Ingress {
			found = append(found, or(ingress.IP, ingress.Hostname))
		}
		return or(strings.Join(append(distinct(found), s.Spec.ExternalIPs...), ","), "<pending>")
	case corev1.ServiceTypeExternalName:
		return s.Spec.ExternalName
	}
	return unknown
}

// distinct sorts, and removes duplicates and empty strings.
func distinct(list []string) []string {
	sort.Strings(list)
	var out []string
	for _, s := range list {
		if s != "" && (len(out) == 0 || out[len(out)-1] != s) {
			out = append(out, s)
		}
	}
	return out
}

func servicePorts(ports []corev1.ServicePort) string {
	var out []string
	for _, p := range ports {
		number := strconv.Itoa(int(p.Port))
		if p.NodePort > 0 {
			number += ":" + strconv.Itoa(int(p.NodePort))
		}
		out = append(out, number+"/"+string(p.Protocol))
	}
	return strings.Join(out, ",")
}

func endpointsTable() table[*corev1.Endpoints] {
	return table[*corev1.Endpoints]{
		columns: columns(text("Endpoints", "The addresses that serve.")),
		row: func(e *corev1.Endpoints, now time.Time) []any {
			return []any{e.Name, or(shorten(endpointAddresses(e), 3, ","), none), age(e, now)}
		},
	}
}

func endpointAddresses(e *corev1.Endpoints) []string {
	var out []string
	for _, subset := range e.Subsets {
		for _, port := range subset.Ports {
			for _, a := range subset.Addresses {
				out = append(out, net.JoinHostPort(a.IP, strconv.Itoa(int(port.Port))))
			}
		}
		if len(subset.Ports) == 0 { // a headless service may have none
			for _, a := range subset.Addresses {
				out = append(out, a.IP)
			}
		}
	}
	return out
}

func nodeTable() table[*corev1.Node] {
	cols := named(
		text("Status", "Whether the node is ready, and whether it takes pods."),
		text("Roles", "The roles that the node's labels give it."),
		ageColumn(),
		text("Version", "The version of the node's kubelet."),
		wide(text("Internal-IP", "The node's address within the cluster.")),
		wide(text("External-IP", "The node's address from outside.")),
		wide(text("OS-Image", "The node's operating system.")),
		wide(text("Kernel-Version", "The node's kernel.")),
		wide(text("Container-Runtime", "The node's container runtime.")),
	)
	return table[*corev1.Node]{
		columns: cols,
		row: func(n *corev1.Node, now time.Time) []any {
			info := &n.Status.NodeInfo
			kernel := or(info.KernelVersion, unknown)
			if info.Architecture != "" {
				kernel += " (" + info.Architecture + ")"
			}
			return []any{
				n.Name, nodeStatus(n), or(nodeRoles(n), none), age(n, now), info.KubeletVersion,
				nodeAddress(n, corev1.NodeInternalIP), nodeAddress(n, corev1.NodeExternalIP),
				or(info.OSImage, unknown), kernel, or(info.ContainerRuntimeVersion, unknown),
			}
		},
	}
}

func nodeStatus(n *corev1.Node) string {
	status := "Unknown"
	for _, c := range n.Status.Conditions {
		switch {
		case c.Type != corev1.NodeReady:
		case c.Status == corev1.ConditionTrue:
			status = "Ready"
		default:
			status = "NotReady"
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

func nodeRoles(n *corev1.Node) string {
	var roles []string
	for key, value := range n.Labels {
		if role, ok := strings.CutPrefix(key, "node-role.kubernetes.io/"); ok {
			roles = append(roles, role)
		} else if key == "kubernetes.io/role" {
			roles = append(roles, value)
		}
	}
	return strings.Join(distinct(roles), ",")
}

func nodeAddress(n *corev1.Node, t corev1.NodeAddressType) string {
	for _, a := range n.Status.Addresses {
		if a.Type == t {
			return a.Address
		}
	}
	return none
}

func podTemplateTable() table[*corev1.PodTemplate] {
	return table[*corev1.PodTemplate]{
		columns: named(
			text("Containers", "The names of the template's containers."),
			text("Images", "The images of the template's containers."),
			text("Pod Labels", "The labels of pods made from the template."),
		),
		row: func(t *corev1.PodTemplate, _ time.Time) []any {
			names, images := containerCells(&t.Template.Spec)
			return []any{t.Name, names, images, labels.FormatLabels(t.Template.Labels)}
		},
	}
}
