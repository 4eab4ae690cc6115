package custom

import (
	"fmt"
	"slices"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// converter implements the conversion strategy None: only the apiVersion changes. Its
// methods change the given object; those of copyingConverter do not.
type converter struct {
	group      string
	namespaced bool
	selectable map[string][]string // field labels by version; has a key for every version
	scale      bool                // some version has /scale, so Scale objects are converted too
}

var _ runtime.ObjectConvertor = (*converter)(nil)

func newConverter(crd *apiextensionsv1.CustomResourceDefinition) *converter {
	c := &converter{
		group:      crd.Spec.Group,
		namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
		selectable: map[string][]string{},
	}
	for _, v := range crd.Spec.Versions {
		c.selectable[v.Name] = selectableFields(v)
		c.scale = c.scale || (v.Subresources != nil && v.Subresources.Scale != nil)
	}
	return c
}

// selectableFields returns a version's field labels: ".spec.color" is "spec.color".
func selectableFields(v apiextensionsv1.CustomResourceDefinitionVersion) []string {
	var out []string
	for _, f := range v.SelectableFields {
		out = append(out, strings.TrimPrefix(f.JSONPath, "."))
	}
	return out
}

// ConvertFieldLabel accepts the supported labels of a field selector.
func (c *converter) ConvertFieldLabel(gvk schema.GroupVersionKind, label, value string) (string, string, error) {
	switch {
	case label == "metadata.name",
		label == "metadata.namespace" && c.namespaced,
		slices.Contains(c.selectable[gvk.Version], label):
		return label, value, nil
	}
	return "", "", fmt.Errorf("field label not supported: %s", label)
}

// Convert copies the content of in to out, in the version of out.
func (c *converter) Convert(in, out, context any) error {
	_, scaleIn := in.(*autoscalingv1.Scale)
	_, scaleOut := out.(*autoscalingv1.Scale)
	if c.scale && (scaleIn || scaleOut) {
		return scheme.Scheme.Convert(in, out, context)
	}
	from, ok := in.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("convert %T: not a custom object", in)
	}
	to, ok := out.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("convert to %T: not a custom object", out)
	}
	converted, err := c.ConvertToVersion(from, to.GroupVersionKind().GroupVersion())
	if err != nil {
		return err
	}
	to.SetUnstructuredContent(converted.(runtime.Unstructured).UnstructuredContent())
	return nil
}

// ConvertToVersion changes the version of an object, or of a list and its items.
func (c *converter) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	from := in.GetObjectKind().GroupVersionKind()
	to, ok := target.KindForGroupVersionKinds([]schema.GroupVersionKind{from})
	if !ok {
		return nil, fmt.Errorf("convert %s: %s has no such kind", from, target.Identifier())
	}
	if _, isScale := in.(*autoscalingv1.Scale); isScale && c.scale {
		return scheme.Scheme.ConvertToVersion(in, target)
	}
	if _, ok := in.(runtime.Unstructured); !ok {
		return nil, fmt.Errorf("convert %T: not a custom object", in)
	}
	if err := c.check(from.GroupVersion(), to.GroupVersion()); err != nil {
		return nil, err
	}
	if list, ok := in.(*unstructured.UnstructuredList); ok {
		for i := range list.Items {
			item := list.Items[i].GroupVersionKind()
			if err := c.check(item.GroupVersion()); err != nil {
				return nil, fmt.Errorf("item %d: %w", i, err)
			}
			list.Items[i].SetGroupVersionKind(to.GroupVersion().WithKind(item.Kind))
		}
	}
	in.GetObjectKind().SetGroupVersionKind(to.GroupVersion().WithKind(from.Kind))
	return in, nil
}

// check refuses versions that the definition does not declare.
func (c *converter) check(versions ...schema.GroupVersion) error {
	for _, gv := range versions {
		if _, ok := c.selectable[gv.Version]; !ok || gv.Group != c.group {
			return fmt.Errorf("convert: no version %s is declared", gv)
		}
	}
	return nil
}

// copyingConverter converts a copy and leaves its input unchanged.
type copyingConverter struct{ runtime.ObjectConvertor }

// Convert converts a copy of in.
func (s copyingConverter) Convert(in, out, context any) error {
	obj, ok := in.(runtime.Object)
	if !ok {
		return fmt.Errorf("convert %T: not an object", in)
	}
	return s.ObjectConvertor.Convert(obj.DeepCopyObject(), out, context)
}

// ConvertToVersion converts a copy of in.
func (s copyingConverter) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	return s.ObjectConvertor.ConvertToVersion(in.DeepCopyObject(), target)
}
