package builtin

import (
	"encoding/json"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validateNamespace(ns *corev1.Namespace) field.ErrorList {
	var errs field.ErrorList
	for i, finalizer := range ns.Spec.Finalizers {
		errs = append(errs, invalids(specPath.Child("finalizers").Index(i), finalizer, validation.IsQualifiedName(string(finalizer)))...)
	}
	return errs
}

// validateNamespaceStatus requires the phase that follows from the deletion: a client cannot
// choose it.
func validateNamespaceStatus(ns, _ *corev1.Namespace) field.ErrorList {
	path := field.NewPath("status", "phase")
	if ns.DeletionTimestamp.IsZero() {
		if ns.Status.Phase != corev1.NamespaceActive {
			return field.ErrorList{field.Invalid(path, ns.Status.Phase, "may only be 'Active' if `deletionTimestamp` is empty")}
		}
	} else if ns.Status.Phase != corev1.NamespaceTerminating {
		return field.ErrorList{field.Invalid(path, ns.Status.Phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")}
	}
	return nil
}

// frozen is Kubernetes' message for an immutable ConfigMap or Secret.
const frozen = "field is immutable when `immutable` is set"

func validateConfigMap(c *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	size := 0
	for _, key := range sortedKeys(c.Data) {
		at := field.NewPath("data").Key(key)
		errs = append(errs, invalids(at, key, validation.IsConfigMapKey(key))...)
		if _, double := c.BinaryData[key]; double {
			errs = append(errs, field.Invalid(at, key, "duplicate of key present in binaryData"))
		}
		size += len(c.Data[key])
	}
	for _, key := range sortedKeys(c.BinaryData) {
		errs = append(errs, invalids(field.NewPath("binaryData").Key(key), key, validation.IsConfigMapKey(key))...)
		size += len(c.BinaryData[key])
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(field.NewPath(""), "", corev1.MaxSecretSize))
	}
	return errs
}

func validateConfigMapUpdate(obj, old *corev1.ConfigMap) field.ErrorList {
	if !deref(old.Immutable, false) {
		return nil
	}
	var errs field.ErrorList
	if !deref(obj.Immutable, false) {
		errs = append(errs, field.Forbidden(field.NewPath("immutable"), frozen))
	}
	if len(unchanged(nil, obj.Data, old.Data)) > 0 {
		errs = append(errs, field.Forbidden(field.NewPath("data"), frozen))
	}
	if len(unchanged(nil, obj.BinaryData, old.BinaryData)) > 0 {
		errs = append(errs, field.Forbidden(field.NewPath("binaryData"), frozen))
	}
	return errs
}

func validateSecret(s *corev1.Secret) field.ErrorList {
	path := field.NewPath("data")
	var errs field.ErrorList
	size := 0
	for _, key := range sortedKeys(s.Data) {
		errs = append(errs, invalids(path.Key(key), key, validation.IsConfigMapKey(key))...)
		size += len(s.Data[key])
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(path, "", corev1.MaxSecretSize))
	}
	return append(errs, validateSecretType(path, s)...)
}

// validateSecretType requires the keys of a well-known type.
func validateSecretType(path *field.Path, s *corev1.Secret) field.ErrorList {
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		return required(field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey), s.Annotations[corev1.ServiceAccountNameKey])
	case corev1.SecretTypeDockercfg:
		return jsonKey(path, s.Data, corev1.DockerConfigKey)
	case corev1.SecretTypeDockerConfigJson:
		return jsonKey(path, s.Data, corev1.DockerConfigJsonKey)
	case corev1.SecretTypeSSHAuth:
		return required(path.Key(corev1.SSHAuthPrivateKey), string(s.Data[corev1.SSHAuthPrivateKey]))
	case corev1.SecretTypeBasicAuth:
		if _, user := s.Data[corev1.BasicAuthUsernameKey]; user {
			return nil
		}
		if _, password := s.Data[corev1.BasicAuthPasswordKey]; password {
			return nil
		}
		return field.ErrorList{
			field.Required(path.Key(corev1.BasicAuthUsernameKey), ""),
			field.Required(path.Key(corev1.BasicAuthPasswordKey), ""),
		}
	case corev1.SecretTypeTLS:
		var errs field.ErrorList
		for _, key := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
			if _, set := s.Data[key]; !set {
				errs = append(errs, field.Required(path.Key(key), ""))
			}
		}
		return errs
	}
	return nil
}

func jsonKey(path *field.Path, data map[string][]byte, key string) field.ErrorList {
	value, set := data[key]
	if !set {
		return field.ErrorList{field.Required(path.Key(key), "")}
	}
	if err := json.Unmarshal(value, &map[string]any{}); err != nil {
		return field.ErrorList{field.Invalid(path.Key(key), "<secret contents redacted>", err.Error())}
	}
	return nil
}

func validateSecretUpdate(obj, old *corev1.Secret) field.ErrorList {
	errs := unchanged(field.NewPath("type"), obj.Type, old.Type)
	if !deref(old.Immutable, false) {
		return errs
	}
	if !deref(obj.Immutable, false) {
		errs = append(errs, field.Forbidden(field.NewPath("immutable"), frozen))
	}
	if len(unchanged(nil, obj.Data, old.Data)) > 0 {
		errs = append(errs, field.Forbidden(field.NewPath("data"), frozen))
	}
	return errs
}

func validateService(s *corev1.Service) field.ErrorList {
	spec := &s.Spec
	errs := oneOf(specPath.Child("type"), spec.Type, corev1.ServiceTypeClusterIP,
		corev1.ServiceTypeExternalName, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort)
	errs = append(errs, oneOf(specPath.Child("sessionAffinity"), spec.SessionAffinity,
		corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone)...)
	headless := spec.ClusterIP == corev1.ClusterIPNone
	if spec.Type == corev1.ServiceTypeExternalName {
		errs = append(errs, requiredName(specPath.Child("externalName"), spec.ExternalName, validation.IsDNS1123Subdomain)...)
		if spec.ClusterIP != "" {
			errs = append(errs, field.Forbidden(specPath.Child("clusterIPs"), "may not be set for ExternalName services"))
		}
	} else if len(spec.Ports) == 0 && !headless {
		errs = append(errs, field.Required(specPath.Child("ports"), ""))
	}
	if headless && (spec.Type == corev1.ServiceTypeLoadBalancer || spec.Type == corev1.ServiceTypeNodePort) {
		errs = append(errs, field.Invalid(specPath.Child("clusterIPs").Index(0), spec.ClusterIPs, "may not be set to 'None' for "+string(spec.Type)+" services"))
	}
	if spec.ClusterIP != "" && !headless {
		if _, err := netip.ParseAddr(spec.ClusterIP); err != nil {
			errs = append(errs, field.Invalid(specPath.Child("clusterIPs").Index(0), spec.ClusterIP, "must be empty, 'None', or a valid IP address"))
		}
	}
	if len(spec.ClusterIPs) > 0 && spec.ClusterIPs[0] != spec.ClusterIP {
		errs = append(errs, field.Invalid(specPath.Child("clusterIPs"), spec.ClusterIPs, "first value must match `clusterIP`"))
	}
	return append(errs, validateServicePorts(specPath.Child("ports"), spec)...)
}

func validateServicePorts(path *field.Path, spec *corev1.ServiceSpec) field.ErrorList {
	type served struct {
		port     int32
		protocol corev1.Protocol
	}
	var errs field.ErrorList
	names, ports := map[string]bool{}, map[served]bool{}
	for i, p := range spec.Ports {
		at := path.Index(i)
		switch {
		case p.Name == "" && len(spec.Ports) > 1:
			errs = append(errs, field.Required(at.Child("name"), ""))
		case p.Name != "":
			errs = append(errs, invalids(at.Child("name"), p.Name, validation.IsDNS1123Label(p.Name))...)
			if names[p.Name] {
				errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
			}
			names[p.Name] = true
		}
		errs = append(errs, portNumber(at.Child("port"), p.Port)...)
		errs = append(errs, validateProtocol(at.Child("protocol"), p.Protocol)...)
		errs = append(errs, portOrName(at.Child("targetPort"), p.TargetPort)...)
		if p.NodePort != 0 && spec.Type != corev1.ServiceTypeNodePort && spec.Type != corev1.ServiceTypeLoadBalancer {
			errs = append(errs, field.Forbidden(at.Child("nodePort"), "may not be used when `type` is '"+string(spec.Type)+"'"))
		}
		if key := (served{p.Port, p.Protocol}); ports[key] {
			errs = append(errs, field.Duplicate(at, corev1.ServicePort{Protocol: p.Protocol, Port: p.Port}))
		} else {
			ports[key] = true
		}
	}
	return errs
}

// validateServiceUpdate keeps the cluster IP, which clients use.
func validateServiceUpdate(obj, old *corev1.Service) field.ErrorList {
	if obj.Spec.Type == corev1.ServiceTypeExternalName || old.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	if old.Spec.ClusterIP != "" && obj.Spec.ClusterIP != old.Spec.ClusterIP {
		return field.ErrorList{field.Invalid(specPath.Child("clusterIPs").Index(0), obj.Spec.ClusterIPs, "may not change once set")}
	}
	return nil
}

func validateEndpoints(e *corev1.Endpoints) field.ErrorList {
	var errs field.ErrorList
	for i, subset := range e.Subsets {
		at := field.NewPath("subsets").Index(i)
		if len(subset.Addresses)+len(subset.NotReadyAddresses) == 0 {
			errs = append(errs, field.Required(at, "must specify `addresses` or `notReadyAddresses`"))
		}
		for j, a := range subset.Addresses {
			errs = append(errs, ipAddress(at.Child("addresses").Index(j).Child("ip"), a.IP)...)
		}
		for j, a := range subset.NotReadyAddresses {
			errs = append(errs, ipAddress(at.Child("notReadyAddresses").Index(j).Child("ip"), a.IP)...)
		}
		for j, p := range subset.Ports {
			if p.Name == "" && len(subset.Ports) > 1 {
				errs = append(errs, field.Required(at.Child("ports").Index(j).Child("name"), ""))
			}
			errs = append(errs, portNumber(at.Child("ports").Index(j).Child("port"), p.Port)...)
			errs = append(errs, validateProtocol(at.Child("ports").Index(j).Child("protocol"), p.Protocol)...)
		}
	}
	return errs
}

func ipAddress(path *field.Path, value string) field.ErrorList {
	if _, err := netip.ParseAddr(value); err != nil {
		return field.ErrorList{field.Invalid(path, value, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")}
	}
	return nil
}

func validateNode(n *corev1.Node) field.ErrorList {
	var errs field.ErrorList
	type key struct {
		key    string
		effect corev1.TaintEffect
	}
	seen := map[key]bool{}
	for i, t := range n.Spec.Taints {
		at := specPath.Child("taints").Index(i)
		errs = append(errs, invalids(at.Child("key"), t.Key, validation.IsQualifiedName(t.Key))...)
		errs = append(errs, invalids(at.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))...)
		errs = append(errs, oneOf(at.Child("effect"), t.Effect,
			corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)...)
		if k := (key{t.Key, t.Effect}); seen[k] {
			errs = append(errs, field.Duplicate(at, t))
		} else {
			seen[k] = true
		}
	}
	for _, name := range sortedKeys(n.Status.Capacity) {
		errs = append(errs, quantityNotNegative(field.NewPath("status", "capacity").Key(string(name)), n.Status.Capacity[name])...)
	}
	return errs
}

func validateNodeUpdate(obj, old *corev1.Node) field.ErrorList {
	var errs field.ErrorList
	if old.Spec.ProviderID != "" {
		errs = unchanged(specPath.Child("providerID"), obj.Spec.ProviderID, old.Spec.ProviderID)
	}
	if old.Spec.PodCIDR != "" && obj.Spec.PodCIDR != old.Spec.PodCIDR {
		errs = append(errs, field.Forbidden(specPath.Child("podCIDRs"), "node updates may not change podCIDR except from \"\" to valid"))
	}
	return errs
}
