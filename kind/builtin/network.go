package builtin

import (
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/kind"
)

func networkingKinds() []*kind.Kind {
	return []*kind.Kind{
		def[networkingv1.Ingress, *networkingv1.Ingress]{
			gv: networkingv1.SchemeGroupVersion, plural: "ingresses", short: []string{"ing"},
			parts:      func(i *networkingv1.Ingress) (any, any) { return &i.Spec, &i.Status },
			generation: true,
			validate:   validateIngress,
			table:      ingressTable,
		}.kind(),
		def[networkingv1.NetworkPolicy, *networkingv1.NetworkPolicy]{
			gv: networkingv1.SchemeGroupVersion, plural: "networkpolicies", short: []string{"netpol"},
			parts:      func(p *networkingv1.NetworkPolicy) (any, any) { return &p.Spec, nil },
			noStatus:   true,
			generation: true,
			validate:   validateNetworkPolicy,
			table:      networkPolicyTable,
		}.kind(),
		def[networkingv1.IngressClass, *networkingv1.IngressClass]{
			gv: networkingv1.SchemeGroupVersion, plural: "ingressclasses", cluster: true,
			parts:          func(c *networkingv1.IngressClass) (any, any) { return &c.Spec, nil },
			noStatus:       true,
			generation:     true,
			validate:       validateIngressClass,
			validateUpdate: validateIngressClassUpdate,
			table:          ingressClassTable,
		}.kind(),
		def[networkingv1.IPAddress, *networkingv1.IPAddress]{
			gv: networkingv1.SchemeGroupVersion, plural: "ipaddresses", short: []string{"ip"}, cluster: true,
			name:           ipAddressName,
			validate:       validateIPAddress,
			validateUpdate: validateIPAddressUpdate,
			table:          ipAddressTable,
		}.kind(),
		def[networkingv1.ServiceCIDR, *networkingv1.ServiceCIDR]{
			gv: networkingv1.SchemeGroupVersion, plural: "servicecidrs", cluster: true,
			parts:          func(c *networkingv1.ServiceCIDR) (any, any) { return &c.Spec, &c.Status },
			validate:       validateServiceCIDR,
			validateUpdate: validateServiceCIDRUpdate,
			table:          serviceCIDRTable,
		}.kind(),
	}
}

func nodeKinds() []*kind.Kind {
	return []*kind.Kind{def[nodev1.RuntimeClass, *nodev1.RuntimeClass]{
		gv: nodev1.SchemeGroupVersion, plural: "runtimeclasses", cluster: true,
		createOnUpdate: true,
		conditional:    true,
		validate:       validateRuntimeClass,
		validateUpdate: func(obj, old *nodev1.RuntimeClass) field.ErrorList {
			return unchanged(field.NewPath("handler"), obj.Handler, old.Handler)
		},
		table: runtimeClassTable,
	}.kind()}
}
