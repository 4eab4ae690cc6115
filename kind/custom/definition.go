package custom

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	codec "k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
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
		Table:             kind.Table[*apiextensionsv1.CustomResourceDefinition]{Columns: definitionColumns(), Cells: definitionCells},
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
	w := kind.NewWire(s, codec.NewCodecFactory(s, codec.WithStreamingCollectionEncodingToJSON(), codec.WithStreamingCollectionEncodingToProtobuf()))
	w.TypeConverter = newLazyTypes(func() (map[string]*spec.Schema, error) {
		return generated(s, apiextensionsv1.CustomResourceDefinition{}.OpenAPIModelName())
	})
	return w
})

// statusManager is the field manager of the status that this server writes.
const statusManager = "exeunt"

// OwnStatus records in changed that this server owns the fields of the status in which it
// differs from live. Like the library, it records no owner if the fields cannot be determined.
func OwnStatus(live, changed *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	manager, err := statusOwners()
	if err != nil {
		return changed
	}
	if owned, ok := manager.UpdateNoErrors(live, changed, statusManager).(*apiextensionsv1.CustomResourceDefinition); ok {
		return owned
	}
	return changed
}

var statusOwners = sync.OnceValues(func() (*managedfields.FieldManager, error) {
	gvk := apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
	wire := definitionWire()
	return managedfields.NewDefaultFieldManager(wire.TypeConverter, wire.Convertor, wire.Defaulter, wire.Creater,
		gvk, gvk.GroupVersion(), "status", fieldpath.NewExcludeFilterSetMap(resetFields(gvk, "spec")))
})

// definitionColumns are those of Kubernetes 1.37.
func definitionColumns() []metav1.TableColumnDefinition {
	docs := metav1.ObjectMeta{}.SwaggerDoc()
	return []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: docs["name"]},
		{Name: "Scope", Type: "string", Description: "Whether its objects live in a namespace"},
		{Name: "Versions", Type: "string", Description: "The versions it serves"},
		{Name: "Created At", Type: "date", Description: docs["creationTimestamp"]},
		{Name: "Group", Type: "string", Priority: 1, Description: "The group of its kind"},
		{Name: "Kind", Type: "string", Priority: 1, Description: "The kind it declares"},
		{Name: "ShortNames", Type: "string", Priority: 1, Description: "The short names it asks for"},
		{Name: "Established", Type: "boolean", Priority: 1, Description: "Whether its kind is served"},
	}
}

func definitionCells(crd *apiextensionsv1.CustomResourceDefinition) []any {
	var versions []string
	for _, v := range crd.Spec.Versions {
		switch {
		case v.Served && v.Storage:
			versions = append(versions, v.Name+"(storage)")
		case v.Served:
			versions = append(versions, v.Name)
		}
	}
	slices.Sort(versions)
	return []any{
		crd.Name,
		string(crd.Spec.Scope),
		strings.Join(versions, ","),
		crd.CreationTimestamp.UTC().Format(time.RFC3339),
		crd.Spec.Group,
		crd.Spec.Names.Kind,
		strings.Join(crd.Spec.Names.ShortNames, ","),
		Established(crd),
	}
}
