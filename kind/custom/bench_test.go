package custom

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// BenchmarkNew measures the cost of one definition at the server's start.
func BenchmarkNew(b *testing.B) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal([]byte(widgets), crd); err != nil {
		b.Fatal(err)
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
	crd.Status, _ = Accept(crd, nil, now)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := New(crd, nil); err != nil {
			b.Fatal(err)
		}
	}
}
