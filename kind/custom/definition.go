package custom

import (
	"fmt"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	codec "k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// Definition returns the kind CustomResourceDefinition itself. A deleted definition
// keeps a finalizer until all objects of its kind are gone.
func Definition() *kind.Kind {
	gvk := apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
	k := &kind.Kind{
		Group:      gvk.Group,
		Name:       gvk.Kind,
		ListName:   "CustomResourceDefinitionList",
		Plural:     "customresourcedefinitions",
		Singular:   "customresourcedefinition",
		ShortNames: []string{"crd", "crds"},
		Categories: []string{"api-extensions"},
		Storage:    kind.StorageName(gvk.Group, "customresourcedefinitions"),
		Rules: lifecycle.Rules{
			DeleteFinalizers: []string{apiextensionsv1.CustomResourceCleanupFinalizer},
			NoGrace:          true,
			MarkDeleting:     markTerminating,
			MarkActive:       markActive,
		},
	}
	k.Versions = []*kind.Version{{
		Kind:    k,
		GVK:     gvk,
		New:     func() runtime.Object { return &apiextensionsv1.CustomResourceDefinition{} },
		NewList: func() runtime.Object { return &apiextensionsv1.CustomResourceDefinitionList{} },
		Decode: func(body []byte, resourceVersion string) (runtime.Object, error) {
			crd := &apiextensionsv1.CustomResourceDefinition{}
			if err := object.DecodeInto(body, resourceVersion, gvk, crd); err != nil {
				return nil, err
			}
			return crd, nil
		},
		Encode:            object.Encode,
		Raw:               true,
		Strategy:          definitionStrategy{},
		Status:            definitionStatusStrategy{},
		ResetFields:       resetFields(gvk, "status"),
		StatusResetFields: resetFields(gvk, "spec"),
		Table:             definitionTable{},
		Wire:              definitionWire(),
	}}
	return k
}

func resetFields(gvk schema.GroupVersionKind, name string) map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{
		apiVersion(gvk.GroupVersion().String()): fieldpath.NewSet(fieldpath.MakePathOrDie(name)),
	}
}

// definitionScheme holds apiextensions.k8s.io/v1 with its defaults, and the types of
// responses that are not objects (Status, for example). It has no internal types: v1
// is served and stored.
var definitionScheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(s); err != nil {
		panic(fmt.Sprintf("definition scheme: %v", err)) // the input is constant, so every test run would fail
	}
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s
})

var definitionWire = sync.OnceValue(func() *kind.Wire {
	s := definitionScheme()
	return &kind.Wire{
		Serializer: codec.NewCodecFactory(s,
			codec.WithStreamingCollectionEncodingToJSON(), codec.WithStreamingCollectionEncodingToProtobuf()),
		ParameterCodec:  runtime.NewParameterCodec(s),
		Creater:         s,
		Convertor:       s,
		UnsafeConvertor: runtime.UnsafeObjectConvertor(s),
		Defaulter:       s,
		Typer:           s,
		TypeConverter: newLazyTypes(func() (map[string]*spec.Schema, error) {
			return generated(s, apiextensionsv1.CustomResourceDefinition{}.OpenAPIModelName())
		}),
	}
})
