package builtin

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func eventColumns() []metav1.TableColumnDefinition {
	name := wide(named()[0])
	return []metav1.TableColumnDefinition{
		text("Last Seen", "How long ago it happened last."),
		text("Type", "Normal or Warning."),
		text("Reason", "What happened, in one word."),
		text("Object", "What it happened to."),
		wide(text("Subobject", "Which part of it.")),
		wide(text("Source", "Who reports it.")),
		text("Message", "What happened, in a sentence."),
		wide(text("First Seen", "How long ago it happened first.")),
		wide(text("Count", "How often it happened.")),
		name,
	}
}

func eventTable() table[*corev1.Event] {
	return table[*corev1.Event]{columns: eventColumns(), row: eventRow}
}

// newEventTable is the table of the events.k8s.io view; it equals the core one.
func newEventTable() table[*eventsv1.Event] {
	return table[*eventsv1.Event]{
		columns: eventColumns(),
		row:     func(e *eventsv1.Event, now time.Time) []any { return eventRow(toCoreEvent(e), now) },
	}
}

func eventRow(e *corev1.Event, now time.Time) []any {
	first := e.FirstTimestamp.Time
	if first.IsZero() {
		first = e.EventTime.Time
	}
	last := e.LastTimestamp.Time
	if last.IsZero() {
		last = first
	}
	count := max(e.Count, 1)
	if e.Series != nil {
		last, count = e.Series.LastObservedTime.Time, e.Series.Count
	}
	target := strings.ToLower(e.InvolvedObject.Kind)
	if e.InvolvedObject.Name != "" {
		target += "/" + e.InvolvedObject.Name
	}
	source := or(e.Source.Component, e.ReportingController)
	if host := or(e.Source.Host, e.ReportingInstance); host != "" {
		source += ", " + host
	}
	return []any{
		since(last, now), e.Type, e.Reason, target, e.InvolvedObject.FieldPath, source,
		strings.TrimSpace(e.Message), since(first, now), int64(count), e.Name,
	}
}

func leaseTable() table[*coordinationv1.Lease] {
	return table[*coordinationv1.Lease]{
		columns: columns(text("Holder", "Who holds the lease.")),
		row: func(l *coordinationv1.Lease, now time.Time) []any {
			return []any{l.Name, deref(l.Spec.HolderIdentity, ""), age(l, now)}
		},
	}
}

func endpointSliceTable() table[*discoveryv1.EndpointSlice] {
	return table[*discoveryv1.EndpointSlice]{
		columns: columns(
			text("AddressType", "What the addresses are."),
			text("Ports", "The ports that are served."),
			text("Endpoints", "The addresses that serve."),
		),
		row: func(e *discoveryv1.EndpointSlice, now time.Time) []any {
			var ports, addresses []string
			for _, p := range e.Ports {
				port := deref(p.Name, "*")
				if p.Port != nil {
					port = strconv.Itoa(int(*p.Port))
				}
				ports = append(ports, port)
			}
			for _, endpoint := range e.Endpoints {
				addresses = append(addresses, endpoint.Addresses...)
			}
			return []any{
				e.Name, string(e.AddressType), or(shorten(ports, 3, ","), unset), or(shorten(addresses, 3, ","), unset), age(e, now),
			}
		},
	}
}

func disruptionBudgetTable() table[*policyv1.PodDisruptionBudget] {
	return table[*policyv1.PodDisruptionBudget]{
		columns: columns(
			text("Min Available", "How many pods must stay."),
			text("Max Unavailable", "How many pods may be missing."),
			number("Allowed Disruptions", "How many pods may be taken now."),
		),
		row: func(b *policyv1.PodDisruptionBudget, now time.Time) []any {
			least, most := "N/A", "N/A"
			if b.Spec.MinAvailable != nil {
				least = b.Spec.MinAvailable.String()
			}
			if b.Spec.MaxUnavailable != nil {
				most = b.Spec.MaxUnavailable.String()
			}
			return []any{b.Name, least, most, int64(b.Status.DisruptionsAllowed), age(b, now)}
		},
	}
}

func ingressTable() table[*networkingv1.Ingress] {
	return table[*networkingv1.Ingress]{
		columns: columns(
			text("Class", "Who implements the ingress."),
			text("Hosts", "The hosts that rules are for."),
			text("Address", "Where the ingress can be reached."),
			text("Ports", "The ports that are open."),
		),
		row: func(i *networkingv1.Ingress, now time.Time) []any {
			var hosts, addresses []string
			for _, rule := range i.Spec.Rules {
				if rule.Host != "" {
					hosts = append(hosts, rule.Host)
				}
			}
			for _, point := range i.Status.LoadBalancer.Ingress {
				addresses = append(addresses, or(point.IP, point.Hostname))
			}
			ports := "80"
			if len(i.Spec.TLS) > 0 {
				ports = "80, 443"
			}
			return []any{
				i.Name, deref(i.Spec.IngressClassName, none), or(shorten(hosts, 3, ","), "*"),
				strings.Join(distinct(addresses), ","), ports, age(i, now),
			}
		},
	}
}

func networkPolicyTable() table[*networkingv1.NetworkPolicy] {
	return table[*networkingv1.NetworkPolicy]{
		columns: columns(text("Pod-Selector", "Which pods the policy is for.")),
		row: func(p *networkingv1.NetworkPolicy, now time.Time) []any {
			return []any{p.Name, metav1.FormatLabelSelector(&p.Spec.PodSelector), age(p, now)}
		},
	}
}

func bindingColumns() []metav1.TableColumnDefinition {
	return append(columns(text("Role", "The role that is given.")),
		wide(text("Users", "The users who have it.")),
		wide(text("Groups", "The groups who have it.")),
		wide(text("ServiceAccounts", "The service accounts who have it.")),
	)
}

func roleBindingTable() table[*rbacv1.RoleBinding] {
	return table[*rbacv1.RoleBinding]{
		columns: bindingColumns(),
		row:     func(b *rbacv1.RoleBinding, now time.Time) []any { return bindingRow(b, b.RoleRef, b.Subjects, now) },
	}
}

func clusterRoleBindingTable() table[*rbacv1.ClusterRoleBinding] {
	return table[*rbacv1.ClusterRoleBinding]{
		columns: bindingColumns(),
		row: func(b *rbacv1.ClusterRoleBinding, now time.Time) []any {
			return bindingRow(b, b.RoleRef, b.Subjects, now)
		},
	}
}

func bindingRow(obj metav1.Object, ref rbacv1.RoleRef, subjects []rbacv1.Subject, now time.Time) []any {
	var users, groups, accounts []string
	for _, s := range subjects {
		switch s.Kind {
		case rbacv1.UserKind:
			users = append(users, s.Name)
		case rbacv1.GroupKind:
			groups = append(groups, s.Name)
		case rbacv1.ServiceAccountKind:
			accounts = append(accounts, s.Namespace+"/"+s.Name)
		}
	}
	return []any{
		obj.GetName(), ref.Kind + "/" + ref.Name, age(obj, now),
		strings.Join(users, ", "), strings.Join(groups, ", "), strings.Join(accounts, ", "),
	}
}

func autoscalerTable() table[*autoscalingv2.HorizontalPodAutoscaler] {
	return table[*autoscalingv2.HorizontalPodAutoscaler]{
		columns: columns(
			text("Reference", "What is scaled."),
			text("Targets", "The metrics as they are, and as they should be."),
			text("MinPods", "The least number of pods."),
			text("MaxPods", "The greatest number of pods."),
			text("Replicas", "How many pods there are."),
		),
		row: func(h *autoscalingv2.HorizontalPodAutoscaler, now time.Time) []any {
			least := unset
			if h.Spec.MinReplicas != nil {
				least = strconv.Itoa(int(*h.Spec.MinReplicas))
			}
			var metrics []string
			for i := range h.Spec.Metrics {
				var current autoscalingv2.MetricStatus
				if i < len(h.Status.CurrentMetrics) {
					current = h.Status.CurrentMetrics[i]
				}
				metrics = append(metrics, metricCell(&h.Spec.Metrics[i], &current))
			}
			return []any{
				h.Name, h.Spec.ScaleTargetRef.Kind + "/" + h.Spec.ScaleTargetRef.Name, or(shorten(metrics, 2, ", "), none),
				least, int64(h.Spec.MaxReplicas), int64(h.Status.CurrentReplicas), age(h, now),
			}
		},
	}
}

// metricCell shows one metric as current/target. A source that the spec or the status
// omits has zero values here and is shown as unknown.
func metricCell(spec *autoscalingv2.MetricSpec, status *autoscalingv2.MetricStatus) string {
	switch spec.Type {
	case autoscalingv2.ResourceMetricSourceType:
		s, c := deref(spec.Resource, autoscalingv2.ResourceMetricSource{}), deref(status.Resource, autoscalingv2.ResourceMetricStatus{})
		return resourceCell(s.Name, s.Target, c.Current)
	case autoscalingv2.ContainerResourceMetricSourceType:
		s := deref(spec.ContainerResource, autoscalingv2.ContainerResourceMetricSource{})
		c := deref(status.ContainerResource, autoscalingv2.ContainerResourceMetricStatus{})
		return resourceCell(s.Name, s.Target, c.Current)
	case autoscalingv2.PodsMetricSourceType:
		s, c := deref(spec.Pods, autoscalingv2.PodsMetricSource{}), deref(status.Pods, autoscalingv2.PodsMetricStatus{})
		return quantity(c.Current.AverageValue) + "/" + quantity(s.Target.AverageValue)
	case autoscalingv2.ObjectMetricSourceType:
		s, c := deref(spec.Object, autoscalingv2.ObjectMetricSource{}), deref(status.Object, autoscalingv2.ObjectMetricStatus{})
		return valueCell(s.Target, c.Current)
	case autoscalingv2.ExternalMetricSourceType:
		s, c := deref(spec.External, autoscalingv2.ExternalMetricSource{}), deref(status.External, autoscalingv2.ExternalMetricStatus{})
		return valueCell(s.Target, c.Current)
	}
	return "<unknown type>"
}

func resourceCell(name corev1.ResourceName, target autoscalingv2.MetricTarget, current autoscalingv2.MetricValueStatus) string {
	if target.AverageValue != nil {
		return fmt.Sprintf("%s: %s/%s", name, quantity(current.AverageValue), target.AverageValue)
	}
	return fmt.Sprintf("%s: %s/%s", name, percent(current.AverageUtilization, unknown), percent(target.AverageUtilization, "<auto>"))
}

func valueCell(target autoscalingv2.MetricTarget, current autoscalingv2.MetricValueStatus) string {
	if target.AverageValue != nil {
		return quantity(current.AverageValue) + "/" + target.AverageValue.String() + " (avg)"
	}
	return quantity(current.Value) + "/" + quantity(target.Value)
}

func quantity(q *resource.Quantity) string {
	if q == nil {
		return unknown
	}
	return q.String()
}

func percent(p *int32, nothing string) string {
	if p == nil {
		return nothing
	}
	return fmt.Sprintf("%d%%", *p)
}
