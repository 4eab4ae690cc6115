package server

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// TestMirror: the Endpoints of the Service kubernetes have the addresses of its EndpointSlice, unless a person changed them.
func TestMirror(t *testing.T) {
	subsets := func(all ...[]string) (out []corev1.EndpointSubset) {
		for _, ips := range all {
			s := corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Port: 6443}}, Addresses: []corev1.EndpointAddress{}}
			for _, ip := range ips {
				s.Addresses = append(s.Addresses, corev1.EndpointAddress{IP: ip})
			}
			out = append(out, s)
		}
		return out
	}
	for name, test := range map[string]struct{ have, want []corev1.EndpointSubset }{
		"a replica came": {subsets([]string{"10.0.0.1"}), subsets([]string{"10.0.0.1", "10.0.0.2"})},
		"another host":   {subsets([]string{"10.9.9.9"}), subsets([]string{"10.0.0.1", "10.0.0.2"})},
		"changed":        {subsets([]string{"a"}, []string{"b"}), subsets([]string{"a"}, []string{"b"})},
		"none":           {nil, nil},
	} {
		e := &corev1.Endpoints{Subsets: test.have}
		mirror(e, []string{"10.0.0.1", "10.0.0.2"})
		if diff := cmp.Diff(test.want, e.Subsets); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}
