package builtin

import (
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const maxIngressController = 250

func validateIngressClass(c *networkingv1.IngressClass) field.ErrorList {
	at := specPath.Child("controller")
	var errs field.ErrorList
	if len(c.Spec.Controller) > maxIngressController {
		errs = append(errs, field.TooLong(at, "", maxIngressController))
	}
	errs = append(errs, validation.IsDomainPrefixedPath(at, c.Spec.Controller)...)
	if c.Spec.Parameters != nil {
		errs = append(errs, validateIngressParameters(specPath.Child("parameters"), c.Spec.Parameters)...)
	}
	return errs
}

func validateIngressParameters(at *field.Path, p *networkingv1.IngressClassParametersReference) field.ErrorList {
	errs := requiredName(at.Child("kind"), p.Kind, path.IsValidPathSegmentName)
	errs = append(errs, requiredName(at.Child("name"), p.Name, path.IsValidPathSegmentName)...)
	if p.APIGroup != nil {
		errs = append(errs, invalids(at.Child("apiGroup"), *p.APIGroup, validation.IsDNS1123Subdomain(*p.APIGroup))...)
	}
	const cluster, namespace = networkingv1.IngressClassParametersReferenceScopeCluster, networkingv1.IngressClassParametersReferenceScopeNamespace
	scope := deref(p.Scope, "")
	errs = append(errs, oneOf(at.Child("scope"), scope, cluster, namespace)...)
	switch {
	case scope == namespace && p.Namespace == nil:
		errs = append(errs, field.Required(at.Child("namespace"), "`parameters.scope` is set to 'Namespace'"))
	case scope == namespace:
		errs = append(errs, invalids(at.Child("namespace"), *p.Namespace, validation.IsDNS1123Label(*p.Namespace))...)
	case scope == cluster && p.Namespace != nil:
		errs = append(errs, field.Forbidden(at.Child("namespace"), "`parameters.scope` is set to 'Cluster'"))
	}
	return errs
}

func validateIngressClassUpdate(obj, old *networkingv1.IngressClass) field.ErrorList {
	return unchanged(specPath.Child("controller"), obj.Spec.Controller, old.Spec.Controller)
}

// ipAddressName requires that the name is an address in its canonical form.
func ipAddressName(name string, _ bool) (problems []string) {
	for _, err := range validation.IsValidIP(&field.Path{}, name) {
		problems = append(problems, err.Detail)
	}
	return problems
}

func validateIPAddress(a *networkingv1.IPAddress) field.ErrorList {
	at := specPath.Child("parentRef")
	if a.Spec.ParentRef == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	parent := a.Spec.ParentRef
	errs := requiredName(at.Child("resource"), parent.Resource, path.IsValidPathSegmentName)
	errs = append(errs, requiredName(at.Child("name"), parent.Name, path.IsValidPathSegmentName)...)
	if parent.Group != "" { // the core group is empty
		errs = append(errs, invalids(at.Child("group"), parent.Group, validation.IsDNS1123Subdomain(parent.Group))...)
	}
	return append(errs, invalids(at.Child("namespace"), parent.Namespace, path.IsValidPathSegmentName(parent.Namespace))...)
}

func validateIPAddressUpdate(obj, old *networkingv1.IPAddress) field.ErrorList {
	return unchanged(specPath.Child("parentRef"), obj.Spec.ParentRef, old.Spec.ParentRef)
}

func validateServiceCIDR(c *networkingv1.ServiceCIDR) field.ErrorList {
	at := specPath.Child("cidrs")
	switch len(c.Spec.CIDRs) {
	case 0:
		return field.ErrorList{field.Required(at, "at least one CIDR required")}
	case 1, 2:
	default:
		return field.ErrorList{field.Invalid(at, c.Spec, "may only hold up to 2 values")}
	}
	var errs field.ErrorList
	families := map[bool]bool{}
	for i, text := range c.Spec.CIDRs {
		errs = append(errs, validation.IsValidCIDR(at.Index(i), text)...)
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			continue // reported above
		}
		if families[prefix.Addr().Is4()] {
			errs = append(errs, field.Invalid(at, c.Spec.CIDRs, "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"))
		}
		families[prefix.Addr().Is4()] = true
	}
	return errs
}

// validateServiceCIDRUpdate allows that a second family is added.
func validateServiceCIDRUpdate(obj, old *networkingv1.ServiceCIDR) field.ErrorList {
	at := specPath.Child("cidrs")
	if len(obj.Spec.CIDRs) < len(old.Spec.CIDRs) {
		return field.ErrorList{field.Invalid(at, obj.Spec.CIDRs, "field is immutable")}
	}
	var errs field.ErrorList
	for i, was := range old.Spec.CIDRs {
		errs = append(errs, unchanged(at.Index(i), obj.Spec.CIDRs[i], was)...)
	}
	return errs
}

func validateRuntimeClass(c *nodev1.RuntimeClass) field.ErrorList {
	errs := requiredName(field.NewPath("handler"), c.Handler, validation.IsDNS1123Label)
	if c.Overhead != nil {
		for _, name := range sortedKeys(c.Overhead.PodFixed) {
			errs = append(errs, quantityNotNegative(field.NewPath("overhead", "podFixed").Key(string(name)), c.Overhead.PodFixed[name])...)
		}
	}
	if c.Scheduling != nil {
		at := field.NewPath("scheduling")
		errs = append(errs, metav1validation.ValidateLabels(c.Scheduling.NodeSelector, at.Child("nodeSelector"))...)
		errs = append(errs, validateTolerations(at.Child("tolerations"), c.Scheduling.Tolerations)...)
	}
	return errs
}
