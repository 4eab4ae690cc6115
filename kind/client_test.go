package kind

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/exeunt/exeunt/object"
)

// TestZeroClient: a Client that nobody filled in may do nothing.
func TestZeroClient(t *testing.T) {
	key := object.Key{Kind: "configmaps", Namespace: "n", Name: "a"}
	v := &Version{Kind: &Kind{Plural: "configmaps"}, GVK: corev1.SchemeGroupVersion.WithKind("ConfigMap")}
	ask := func(c Client) map[string]error {
		return map[string]error{
			"May":         c.May("get", key),
			"MayResource": c.MayResource("list", schema.GroupResource{Resource: "configmaps"}, "n", ""),
			"MayIn":       c.MayIn("", "get", schema.GroupResource{Resource: "configmaps"}, "a"),
			"MutateNew":   c.MutateNew(t.Context(), v, key, &corev1.ConfigMap{}, true),
			"MayCreate":   c.MayCreate(t.Context(), v, key, &corev1.ConfigMap{}, true),
		}
	}
	for name, err := range ask(Client{Name: "system:masters"}) {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s of the zero Client: %v", name, err)
		}
	}
}

// TestNamespaceIsAskedInItself: a right on one Namespace is asked in that namespace, as kube-apiserver asks it, so that a Role
// there can give it; a right in all namespaces is not.
func TestNamespaceIsAskedInItself(t *testing.T) {
	var in string
	c := Client{Authorize: func(_ string, _ schema.GroupResource, namespace, _ string) error { in = namespace; return nil }}
	for _, resource := range []string{"namespaces", "namespaces/status"} {
		for verb, want := range map[string]string{"get": "n", "update": "n", "delete": "n", "history": "n", "confirm-cascade": "n", "create": "", "list": ""} {
			r := schema.GroupResource{Resource: resource}
			if err := c.MayResource(verb, r, "", "n"); err != nil || in != want {
				t.Errorf("%s of %s is asked in %q, want %q: %v", verb, resource, in, want, err)
			}
			if err := c.MayIn("", verb, r, "n"); err != nil || in != "" {
				t.Errorf("%s of %s everywhere is asked in %q: %v", verb, resource, in, err)
			}
		}
	}
	for _, key := range []object.Key{{Kind: "namespaces.example.com", Name: "n"}, {Kind: "nodes", Name: "n"}} {
		if err := c.May("get", key); err != nil || in != "" {
			t.Errorf("get of %s is asked in %q: %v", key, in, err)
		}
	}
}
