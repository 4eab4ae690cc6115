package crossplane

import (
	"fmt"
	"strings"
)

// Definitions returns the CustomResourceDefinitions of the double's kinds, as YAML.
func Definitions() string {
	return definitions([]kind{{"infra.example.org", "xnodes", "XNode"}}) + ProviderDefinitions()
}

// ProviderDefinitions returns those of the provider, without XNode.
func ProviderDefinitions() string {
	return definitions([]kind{
		{"infra.example.org", "machines", "Machine"},
		{"cloud.example.org", "providerconfigs", "ProviderConfig"},
	})
}

type kind struct{ group, plural, kind string }

func definitions(kinds []kind) string {
	var b strings.Builder
	for _, k := range kinds {
		fmt.Fprintf(&b, `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]s.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {plural: %[2]s, singular: %[4]s, kind: %[3]s}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, k.group, k.plural, k.kind, strings.ToLower(k.kind))
	}
	return b.String()
}
