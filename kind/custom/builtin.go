package custom

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/exeunt/exeunt/kind"
)

// BuiltIn creates a built-in kind from the YAML of a definition. Its objects are
// pruned, validated, shown and applied as those of custom kinds. The definition itself
// is not stored, so it cannot be deleted. The text needs only a spec.
func BuiltIn(definition []byte) (*kind.Kind, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(definition, crd); err != nil {
		return nil, fmt.Errorf("read the definition of a built-in kind: %w", err)
	}
	crd.Name, crd.Generation = crd.Spec.Names.Plural+"."+crd.Spec.Group, 1
	crd.Status.AcceptedNames = crd.Spec.Names
	k, err := New(crd, nil)
	if err != nil {
		return nil, err
	}
	k.Definition = ""
	return k, nil
}
