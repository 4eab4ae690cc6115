package custom

import (
	"context"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/jsonpath"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
)

var (
	_ lifecycle.Strategy = definitionStrategy{}
	_ lifecycle.Strategy = definitionStatusStrategy{}
)

// definitionStrategy prepares definitions as v1, and lets the library validate them in
// its internal version.
type definitionStrategy struct{}

func (definitionStrategy) NamespaceScoped() bool { return false }

func (definitionStrategy) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return // Validate refuses it
	}
	crd.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
	crd.Generation = 1
	if !kind.IsRestoring(ctx) {
		delete(crd.Annotations, firstStorageKey)
	}
	crd.Status.StoredVersions = withStorage(crd)
}

func (definitionStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	before, okOld := old.(*apiextensionsv1.CustomResourceDefinition)
	if !ok || !okOld {
		return
	}
	before.Status.DeepCopyInto(&crd.Status)
	crd.Generation = before.Generation
	if !equality.Semantic.DeepEqual(before.Spec, crd.Spec) {
		crd.Generation++
	}
	crd.Status.StoredVersions = withStorage(crd)
	keepFirstStorage(crd, before)
}

// withStorage returns status.storedVersions including the storage version: objects may
// be stored in it as soon as it is declared.
func withStorage(crd *apiextensionsv1.CustomResourceDefinition) []string {
	stored := crd.Status.StoredVersions
	for _, v := range crd.Spec.Versions {
		if v.Storage && !slices.Contains(stored, v.Name) {
			return append(slices.Clone(stored), v.Name)
		}
		if v.Storage {
			break
		}
	}
	return stored
}

func (definitionStrategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	crd, errs := internal(obj)
	if errs != nil {
		return errs
	}
	if errs := selectable(obj); errs != nil {
		return errs
	}
	if errs := library().Validate(ctx, crd); len(errs) > 0 {
		return errs
	}
	return servable(obj)
}

func (definitionStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	crd, before, errs := internals(obj, old)
	if errs != nil {
		return errs
	}
	if errs := selectable(obj); errs != nil {
		return errs
	}
	if errs := library().ValidateUpdate(ctx, crd, before); len(errs) > 0 {
		return errs
	}
	if equality.Semantic.DeepEqual(crd.Spec, before.Spec) {
		return nil // an invalid spec from another release must stay updatable (finalizers)
	}
	return servable(obj)
}

// selectable refuses selectable fields of a version whose schema is missing or not
// structural: the library would use that schema without a check.
func selectable(obj runtime.Object) (errs field.ErrorList) {
	crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return nil
	}
	for i, v := range crd.Spec.Versions {
		if len(v.SelectableFields) == 0 {
			continue
		}
		path := field.NewPath("spec", "versions").Index(i).Child("schema", "openAPIV3Schema")
		if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			errs = append(errs, field.Required(path, "selectableFields need a schema that has the fields"))
		} else if _, err := structural(v); err != nil {
			errs = append(errs, field.Invalid(path, field.OmitValueType{}, err.Error()))
		}
	}
	return errs
}

// servable refuses definitions that the library accepts but this server cannot serve:
// their kind would be established and then missing.
func servable(obj runtime.Object) (errs field.ErrorList) {
	crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return nil
	}
	for i, v := range crd.Spec.Versions {
		for j, column := range v.AdditionalPrinterColumns {
			if err := jsonpath.New(column.Name).Parse("{" + column.JSONPath + "}"); err != nil {
				path := field.NewPath("spec", "versions").Index(i).Child("additionalPrinterColumns").Index(j).Child("jsonPath")
				errs = append(errs, field.Invalid(path, column.JSONPath, err.Error()))
			}
		}
	}
	if len(errs) > 0 {
		return errs
	}
	accepted := crd.DeepCopy()
	accepted.Status.AcceptedNames = accepted.Spec.Names
	if _, err := New(accepted, nil); err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec"), field.OmitValueType{}, err.Error())}
	}
	return nil
}

func (definitionStrategy) WarningsOnCreate(ctx context.Context, obj runtime.Object) []string {
	crd, errs := internal(obj)
	if errs != nil {
		return nil
	}
	return library().WarningsOnCreate(ctx, crd)
}

func (definitionStrategy) WarningsOnUpdate(ctx context.Context, obj, old runtime.Object) []string {
	crd, before, errs := internals(obj, old)
	if errs != nil {
		return nil
	}
	return library().WarningsOnUpdate(ctx, crd, before)
}

func (definitionStrategy) Canonicalize(runtime.Object) {}

func (definitionStrategy) AllowCreateOnUpdate(context.Context) bool { return false }

func (definitionStrategy) AllowUnconditionalUpdate(context.Context) bool { return false }

// definitionStatusStrategy is the strategy of /status: it keeps the spec. As in
// Kubernetes, metadata can be changed.
type definitionStatusStrategy struct{ definitionStrategy }

func (definitionStatusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	before, okOld := old.(*apiextensionsv1.CustomResourceDefinition)
	if !ok || !okOld {
		return
	}
	before.Spec.DeepCopyInto(&crd.Spec)
	crd.Generation = before.Generation
	keepFirstStorage(crd, before)
}

func (definitionStatusStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	crd, before, errs := internals(obj, old)
	if errs != nil {
		return errs
	}
	return customresourcedefinition.NewStatusStrategy(definitionScheme()).ValidateUpdate(ctx, crd, before)
}

func (definitionStatusStrategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

// definitionValidator is the part of the library's strategy for definitions that is used here.
type definitionValidator interface {
	Validate(ctx context.Context, obj runtime.Object) field.ErrorList
	ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList
	WarningsOnCreate(ctx context.Context, obj runtime.Object) []string
	WarningsOnUpdate(ctx context.Context, obj, old runtime.Object) []string
}

func library() definitionValidator { return customresourcedefinition.NewStrategy(definitionScheme()) }

// internal converts a definition to the library's internal version. It copies it,
// because the two versions would otherwise share memory.
func internal(obj runtime.Object) (*apiextensions.CustomResourceDefinition, field.ErrorList) {
	crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return nil, field.ErrorList{field.TypeInvalid(nil, obj, "must be a CustomResourceDefinition")}
	}
	out := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd.DeepCopy(), out, nil); err != nil {
		return nil, field.ErrorList{field.Invalid(field.NewPath("spec"), field.OmitValueType{}, err.Error())}
	}
	return out, nil
}

func internals(obj, old runtime.Object) (crd, before *apiextensions.CustomResourceDefinition, errs field.ErrorList) {
	if crd, errs = internal(obj); errs != nil {
		return nil, nil, errs
	}
	before, errs = internal(old)
	return crd, before, errs
}
