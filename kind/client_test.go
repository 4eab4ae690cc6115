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
