package admission

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// namespaced is a chain that has read a namespace of each sort.
func namespaced(t testing.TB, synced bool) *Chain {
	t.Helper()
	byNamespace := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	ranges := cache.NewIndexer(cache.MetaNamespaceKeyFunc, byNamespace)
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, byNamespace)
	for index, objects := range map[cache.Indexer][]any{
		ranges: {&corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "bounded", Name: "r"}}},
		namespaces: {
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "plain", Labels: map[string]string{"a": "b"}}},
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "bounded"}},
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "secure", Labels: map[string]string{podSecurityLabels + "warn": "baseline"}}},
		},
	} {
		for _, o := range objects {
			if err := index.Add(o); err != nil {
				t.Fatal(err)
			}
		}
	}
	return &Chain{builtin: builtinRules{ranges, listers.NewNamespaceLister(namespaces), func() bool { return synced }}}
}

func TestSelectsIn(t *testing.T) {
	t.Parallel()
	deployments, configmaps := schema.GroupResource{Group: "apps", Resource: "deployments"}, schema.GroupResource{Resource: "configmaps"}
	for _, tt := range []struct {
		namespace string
		resource  schema.GroupResource
		operation admission.Operation
		want      bool
	}{
		{"plain", podResource, admission.Create, false},
		{"plain", deployments, admission.Update, false},
		{"bounded", podResource, admission.Create, true},
		{"bounded", podResource, admission.Delete, false},
		{"bounded", claimResource, admission.Update, true},
		{"bounded", deployments, admission.Create, false},
		{"bounded", configmaps, admission.Create, false},
		{"secure", podResource, admission.Update, true},
		{"secure", deployments, admission.Create, true},
		{"secure", claimResource, admission.Create, false},
		{"secure", configmaps, admission.Create, false},
		{"new", podResource, admission.Create, true}, // not in the index yet
		{"", namespaceResource, admission.Create, true},
	} {
		if got := namespaced(t, true).SelectsIn(tt.namespace, tt.resource, tt.operation); got != tt.want {
			t.Errorf("%s %s in %q: %v", tt.operation, tt.resource, tt.namespace, got)
		}
		a := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, tt.namespace, "x", tt.resource.WithVersion("v1"), "", tt.operation, nil, false, nil)
		if got := namespaced(t, true).applies(a); got != tt.want {
			t.Errorf("%s %s in %q applies: %v", tt.operation, tt.resource, tt.namespace, got)
		}
	}
	if !namespaced(t, false).SelectsIn("plain", podResource, admission.Create) {
		t.Error("before the indexes are read, the plugins must be asked")
	}
}

func BenchmarkSelectsIn(b *testing.B) {
	c := namespaced(b, true)
	b.ReportAllocs()
	for b.Loop() {
		c.SelectsIn("plain", podResource, admission.Create)
	}
}
