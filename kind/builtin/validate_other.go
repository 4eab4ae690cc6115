package builtin

import (
	"fmt"
	"net/netip"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validateLease(l *coordinationv1.Lease) field.ErrorList {
	errs := positive(specPath.Child("leaseDurationSeconds"), l.Spec.LeaseDurationSeconds)
	errs = append(errs, notNegative(specPath.Child("leaseTransitions"), l.Spec.LeaseTransitions)...)
	if l.Spec.Strategy == nil && l.Spec.PreferredHolder != nil {
		errs = append(errs, field.Forbidden(specPath.Child("preferredHolder"), "may only be specified if `strategy` is defined"))
	}
	return errs
}

func validateEndpointSlice(e *discoveryv1.EndpointSlice) field.ErrorList {
	errs := oneOf(field.NewPath("addressType"), e.AddressType,
		discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN)
	for i, endpoint := range e.Endpoints {
		at := field.NewPath("endpoints").Index(i).Child("addresses")
		if len(endpoint.Addresses) == 0 {
			errs = append(errs, field.Required(at, "must contain at least 1 address"))
		}
		for j, address := range endpoint.Addresses {
			errs = append(errs, validateEndpointAddress(at.Index(j), address, e.AddressType)...)
		}
	}
	names := map[string]bool{}
	for i, p := range e.Ports {
		at := field.NewPath("ports").Index(i)
		if name := deref(p.Name, ""); names[name] {
			errs = append(errs, field.Duplicate(at.Child("name"), name))
		} else {
			names[name] = true
		}
		if p.Port != nil {
			errs = append(errs, portNumber(at.Child("port"), *p.Port)...)
		}
		errs = append(errs, validateProtocol(at.Child("protocol"), deref(p.Protocol, ""))...)
	}
	return errs
}

func validateEndpointAddress(at *field.Path, address string, kind discoveryv1.AddressType) field.ErrorList {
	if kind == discoveryv1.AddressTypeFQDN {
		return invalids(at, address, validation.IsDNS1123Subdomain(strings.TrimSuffix(address, ".")))
	}
	ip, err := netip.ParseAddr(address)
	switch {
	case err != nil:
		return ipAddress(at, address)
	case kind == discoveryv1.AddressTypeIPv4 && !ip.Is4():
		return field.ErrorList{field.Invalid(at, address, "must be an IPv4 address")}
	case kind == discoveryv1.AddressTypeIPv6 && !ip.Is6():
		return field.ErrorList{field.Invalid(at, address, "must be an IPv6 address")}
	}
	return nil
}

func validateEndpointSliceUpdate(obj, old *discoveryv1.EndpointSlice) field.ErrorList {
	return unchanged(field.NewPath("addressType"), obj.AddressType, old.AddressType)
}

func validateDisruptionBudget(b *policyv1.PodDisruptionBudget) field.ErrorList {
	var errs field.ErrorList
	if b.Spec.MinAvailable != nil && b.Spec.MaxUnavailable != nil {
		errs = append(errs, field.Invalid(specPath, b.Spec, "minAvailable and maxUnavailable cannot be both set"))
	}
	for _, f := range []struct {
		name  string
		value *intstr.IntOrString
	}{{"minAvailable", b.Spec.MinAvailable}, {"maxUnavailable", b.Spec.MaxUnavailable}} {
		errs = append(errs, amountOrPercent(specPath.Child(f.name), f.value)...)
		errs = append(errs, percentAtMost100(specPath.Child(f.name), f.value)...)
	}
	errs = append(errs, oneOfPtr(specPath.Child("unhealthyPodEvictionPolicy"), b.Spec.UnhealthyPodEvictionPolicy,
		policyv1.AlwaysAllow, policyv1.IfHealthyBudget)...)
	return append(errs, labelSelector(specPath.Child("selector"), b.Spec.Selector)...)
}

func validateIngress(i *networkingv1.Ingress) field.ErrorList {
	var errs field.ErrorList
	if len(i.Spec.Rules) == 0 && i.Spec.DefaultBackend == nil {
		errs = append(errs, field.Invalid(specPath, i.Spec.Rules, "either `defaultBackend` or `rules` must be specified"))
	}
	if i.Spec.DefaultBackend != nil {
		errs = append(errs, validateBackend(specPath.Child("defaultBackend"), i.Spec.DefaultBackend)...)
	}
	for n, rule := range i.Spec.Rules {
		at := specPath.Child("rules").Index(n)
		errs = append(errs, validateHost(at.Child("host"), rule.Host)...)
		if rule.HTTP == nil {
			continue
		}
		if len(rule.HTTP.Paths) == 0 {
			errs = append(errs, field.Required(at.Child("http", "paths"), ""))
		}
		for m := range rule.HTTP.Paths {
			errs = append(errs, validateIngressPath(at.Child("http", "paths").Index(m), &rule.HTTP.Paths[m])...)
		}
	}
	for n, tls := range i.Spec.TLS {
		for m, host := range tls.Hosts {
			errs = append(errs, validateHost(specPath.Child("tls").Index(n).Child("hosts").Index(m), host)...)
		}
	}
	return errs
}

func validateHost(at *field.Path, host string) field.ErrorList {
	switch {
	case host == "":
		return nil
	case strings.Contains(host, "*"):
		return invalids(at, host, validation.IsWildcardDNS1123Subdomain(host))
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return field.ErrorList{field.Invalid(at, host, "must be a DNS name, not an IP address")}
	}
	return invalids(at, host, validation.IsDNS1123Subdomain(host))
}

func validateIngressPath(at *field.Path, p *networkingv1.HTTPIngressPath) field.ErrorList {
	if p.PathType == nil {
		return field.ErrorList{field.Required(at.Child("pathType"), "pathType must be specified")}
	}
	errs := oneOf(at.Child("pathType"), *p.PathType, networkingv1.PathTypeExact,
		networkingv1.PathTypeImplementationSpecific, networkingv1.PathTypePrefix)
	needed := *p.PathType != networkingv1.PathTypeImplementationSpecific
	if (needed || p.Path != "") && !strings.HasPrefix(p.Path, "/") {
		errs = append(errs, field.Invalid(at.Child("path"), p.Path, "must be an absolute path"))
	}
	return append(errs, validateBackend(at.Child("backend"), &p.Backend)...)
}

func validateBackend(at *field.Path, b *networkingv1.IngressBackend) field.ErrorList {
	switch {
	case b.Resource != nil && b.Service != nil:
		return field.ErrorList{field.Invalid(at, "", "cannot set both resource and service backends")}
	case b.Resource != nil:
		return append(required(at.Child("resource", "kind"), b.Resource.Kind), required(at.Child("resource", "name"), b.Resource.Name)...)
	case b.Service == nil:
		return field.ErrorList{field.Invalid(at, "", "resource or service backend is required")}
	}
	errs := requiredName(at.Child("service", "name"), b.Service.Name, validation.IsDNS1035Label)
	port := b.Service.Port
	switch {
	case port.Name != "" && port.Number != 0:
		errs = append(errs, field.Invalid(at, "", "cannot set both port name & port number"))
	case port.Name != "":
		errs = append(errs, invalids(at.Child("service", "port", "name"), port.Name, validation.IsValidPortName(port.Name))...)
	case port.Number != 0:
		errs = append(errs, portNumber(at.Child("service", "port", "number"), port.Number)...)
	default:
		errs = append(errs, field.Required(at, "port name or number is required"))
	}
	return errs
}

func validateNetworkPolicy(p *networkingv1.NetworkPolicy) field.ErrorList {
	errs := labelSelector(specPath.Child("podSelector"), &p.Spec.PodSelector)
	for i, t := range p.Spec.PolicyTypes {
		errs = append(errs, oneOf(specPath.Child("policyTypes").Index(i), t, networkingv1.PolicyTypeEgress, networkingv1.PolicyTypeIngress)...)
	}
	for i, rule := range p.Spec.Ingress {
		at := specPath.Child("ingress").Index(i)
		errs = append(errs, validatePolicyPorts(at.Child("ports"), rule.Ports)...)
		errs = append(errs, validatePeers(at.Child("from"), rule.From)...)
	}
	for i, rule := range p.Spec.Egress {
		at := specPath.Child("egress").Index(i)
		errs = append(errs, validatePolicyPorts(at.Child("ports"), rule.Ports)...)
		errs = append(errs, validatePeers(at.Child("to"), rule.To)...)
	}
	return errs
}

func validatePolicyPorts(at *field.Path, ports []networkingv1.NetworkPolicyPort) field.ErrorList {
	var errs field.ErrorList
	for i, p := range ports {
		errs = append(errs, validateProtocol(at.Index(i).Child("protocol"), deref(p.Protocol, ""))...)
		if p.Port != nil {
			errs = append(errs, portOrName(at.Index(i).Child("port"), *p.Port)...)
		}
		if p.EndPort != nil && (p.Port == nil || p.Port.Type != intstr.Int || *p.EndPort < p.Port.IntVal) {
			errs = append(errs, field.Invalid(at.Index(i).Child("endPort"), *p.EndPort, "must be greater than or equal to `port`, which must be a number"))
		}
	}
	return errs
}

func validatePeers(at *field.Path, peers []networkingv1.NetworkPolicyPeer) field.ErrorList {
	var errs field.ErrorList
	for i, peer := range peers {
		selects := peer.PodSelector != nil || peer.NamespaceSelector != nil
		switch {
		case peer.IPBlock == nil && !selects:
			errs = append(errs, field.Required(at.Index(i), "must specify a peer"))
		case peer.IPBlock != nil && selects:
			errs = append(errs, field.Forbidden(at.Index(i), "may not specify both ipBlock and another peer"))
		case peer.IPBlock != nil:
			if _, err := netip.ParsePrefix(peer.IPBlock.CIDR); err != nil {
				errs = append(errs, field.Invalid(at.Index(i).Child("ipBlock", "cidr"), peer.IPBlock.CIDR, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"))
			}
		}
		errs = append(errs, labelSelector(at.Index(i).Child("podSelector"), peer.PodSelector)...)
		errs = append(errs, labelSelector(at.Index(i).Child("namespaceSelector"), peer.NamespaceSelector)...)
	}
	return errs
}

// highestUserPriority is the highest value of a class that is not a system class.
const highestUserPriority = 1000000000

func validatePriorityClass(c *schedulingv1.PriorityClass) field.ErrorList {
	// The two system classes of every cluster, with their values.
	system := map[string]int32{"system-node-critical": 2000001000, "system-cluster-critical": 2000000000}
	errs := oneOfPtr(field.NewPath("preemptionPolicy"), c.PreemptionPolicy, corev1.PreemptLowerPriority, corev1.PreemptNever)
	if value, ok := system[c.Name]; ok && value == c.Value {
		return errs
	}
	if strings.HasPrefix(c.Name, "system-") {
		return append(errs, field.Forbidden(field.NewPath("metadata", "name"), "priority class names with 'system-' prefix are reserved for system use only"))
	}
	if c.Value > highestUserPriority {
		errs = append(errs, field.Forbidden(field.NewPath("value"), fmt.Sprintf("maximum allowed value of a user defined priority is %d", highestUserPriority)))
	}
	return errs
}

func validatePriorityClassUpdate(obj, old *schedulingv1.PriorityClass) field.ErrorList {
	errs := unchanged(field.NewPath("preemptionPolicy"), obj.PreemptionPolicy, old.PreemptionPolicy)
	if obj.Value != old.Value {
		errs = append(errs, field.Forbidden(field.NewPath("value"), "may not be changed in an update."))
	}
	return errs
}

func validateStorageClass(c *storagev1.StorageClass) field.ErrorList {
	errs := requiredName(field.NewPath("provisioner"), c.Provisioner, func(s string) []string {
		return validation.IsQualifiedName(strings.ToLower(s))
	})
	errs = append(errs, oneOfPtr(field.NewPath("reclaimPolicy"), c.ReclaimPolicy,
		corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain)...)
	return append(errs, oneOfPtr(field.NewPath("volumeBindingMode"), c.VolumeBindingMode,
		storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer)...)
}

func validateStorageClassUpdate(obj, old *storagev1.StorageClass) field.ErrorList {
	errs := unchanged(field.NewPath("parameters"), obj.Parameters, old.Parameters)
	errs = append(errs, unchanged(field.NewPath("provisioner"), obj.Provisioner, old.Provisioner)...)
	errs = append(errs, unchanged(field.NewPath("reclaimPolicy"), obj.ReclaimPolicy, old.ReclaimPolicy)...)
	return append(errs, unchanged(field.NewPath("volumeBindingMode"), obj.VolumeBindingMode, old.VolumeBindingMode)...)
}

func validateAutoscaler(h *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	target := specPath.Child("scaleTargetRef")
	errs := requiredName(target.Child("kind"), h.Spec.ScaleTargetRef.Kind, path.IsValidPathSegmentName)
	errs = append(errs, requiredName(target.Child("name"), h.Spec.ScaleTargetRef.Name, path.IsValidPathSegmentName)...)
	errs = append(errs, positive(specPath.Child("minReplicas"), h.Spec.MinReplicas)...)
	errs = append(errs, positive(specPath.Child("maxReplicas"), &h.Spec.MaxReplicas)...)
	if least := deref(h.Spec.MinReplicas, 1); h.Spec.MaxReplicas > 0 && h.Spec.MaxReplicas < least {
		errs = append(errs, field.Invalid(specPath.Child("maxReplicas"), h.Spec.MaxReplicas, "must be greater than or equal to `minReplicas`"))
	}
	for i := range h.Spec.Metrics {
		errs = append(errs, validateMetric(specPath.Child("metrics").Index(i), &h.Spec.Metrics[i])...)
	}
	return errs
}

// validateMetric requires that a metric has the source that its type names.
func validateMetric(at *field.Path, m *autoscalingv2.MetricSpec) field.ErrorList {
	sources := map[autoscalingv2.MetricSourceType]struct {
		name string
		set  bool
	}{
		autoscalingv2.ObjectMetricSourceType:            {"object", m.Object != nil},
		autoscalingv2.PodsMetricSourceType:              {"pods", m.Pods != nil},
		autoscalingv2.ResourceMetricSourceType:          {"resource", m.Resource != nil},
		autoscalingv2.ContainerResourceMetricSourceType: {"containerResource", m.ContainerResource != nil},
		autoscalingv2.ExternalMetricSourceType:          {"external", m.External != nil},
	}
	errs := oneOf(at.Child("type"), m.Type, sortedKeys(sources)...)
	if source, known := sources[m.Type]; known && !source.set {
		errs = append(errs, field.Required(at.Child(source.name), "must populate information for the given metric source"))
	}
	for _, t := range sortedKeys(sources) {
		if t != m.Type && sources[t].set {
			errs = append(errs, field.Forbidden(at.Child(sources[t].name), "must populate the given metric source only"))
		}
	}
	return errs
}
