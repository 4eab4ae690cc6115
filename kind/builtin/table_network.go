package builtin

import (
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func ingressClassTable() table[*networkingv1.IngressClass] {
	return table[*networkingv1.IngressClass]{
		columns: columns(
			text("Controller", "The controller that implements ingresses of the class."),
			text("Parameters", "An object with more configuration."),
		),
		row: func(c *networkingv1.IngressClass, now time.Time) []any {
			name, parameters := c.Name, none
			if c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
				name += " (default)"
			}
			if p := c.Spec.Parameters; p != nil {
				parameters = p.Kind
				if p.APIGroup != nil {
					parameters += "." + *p.APIGroup
				}
				parameters += "/" + p.Name
			}
			return []any{name, c.Spec.Controller, parameters, age(c, now)}
		},
	}
}

func ipAddressTable() table[*networkingv1.IPAddress] {
	return table[*networkingv1.IPAddress]{
		columns: columns(text("ParentRef", "The object that has the address.")),
		row: func(a *networkingv1.IPAddress, now time.Time) []any {
			parent := none
			if ref := a.Spec.ParentRef; ref != nil {
				parent = strings.ToLower(schema.GroupResource{Group: ref.Group, Resource: ref.Resource}.String())
				if ref.Namespace != "" {
					parent += "/" + ref.Namespace
				}
				parent += "/" + ref.Name
			}
			return []any{a.Name, parent, age(a, now)}
		},
	}
}

func serviceCIDRTable() table[*networkingv1.ServiceCIDR] {
	return table[*networkingv1.ServiceCIDR]{
		columns: columns(text("CIDRs", "The ranges of addresses.")),
		row: func(c *networkingv1.ServiceCIDR, now time.Time) []any {
			return []any{c.Name, strings.Join(c.Spec.CIDRs, ","), age(c, now)}
		},
	}
}

func runtimeClassTable() table[*nodev1.RuntimeClass] {
	return table[*nodev1.RuntimeClass]{
		columns: columns(text("Handler", "The handler on the node.")),
		row:     func(c *nodev1.RuntimeClass, now time.Time) []any { return []any{c.Name, c.Handler, age(c, now)} },
	}
}
