package custom

import (
	"context"

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

// definitionStrategy applies the library's strategy, which decides about the internal version, to
// definitions as v1.
type definitionStrategy struct{}

func (definitionStrategy) NamespaceScoped() bool { return false }

func (definitionStrategy) Create(ctx context.Context, obj runtime.Object) ([]string, field.ErrorList) {
	crd, in, errs := internal(obj)
	if errs == nil {
		errs = selectable(crd)
	}
	if errs != nil {
		return nil, errs
	}
	if !kind.IsRestoring(ctx) {
		delete(in.Annotations, firstStorageKey)
	}
	library := customresourcedefinition.NewStrategy(definitionScheme())
	library.PrepareForCreate(ctx, in)
	if errs := library.Validate(ctx, in); len(errs) > 0 {
		return nil, errs
	}
	if errs := external(in, crd); errs != nil {
		return nil, errs
	}
	return library.WarningsOnCreate(ctx, in), servable(crd)
}

func (definitionStrategy) Update(ctx context.Context, obj, old runtime.Object) ([]string, field.ErrorList) {
	crd, in, errs := internal(obj)
	if errs == nil {
		errs = selectable(crd)
	}
	if errs != nil {
		return nil, errs
	}
	before, was, errs := internal(old)
	if errs != nil {
		return nil, errs
	}
	library := customresourcedefinition.NewStrategy(definitionScheme())
	library.PrepareForUpdate(ctx, in, was)
	if errs := library.ValidateUpdate(ctx, in, was); len(errs) > 0 {
		return nil, errs
	}
	if errs := external(in, crd); errs != nil {
		return nil, errs
	}
	keepFirstStorage(crd, before)
	if equality.Semantic.DeepEqual(in.Spec, was.Spec) {
		return nil, nil // an invalid spec from another release must stay updatable (finalizers)
	}
	return library.WarningsOnUpdate(ctx, in, was), servable(crd)
}

func (definitionStrategy) AllowCreateOnUpdate(context.Context) bool { return false }

func (definitionStrategy) AllowUnconditionalUpdate(context.Context) bool { return false }

// selectable refuses selectable fields of a version whose schema is missing or not
// structural: the library would use that schema without a check.
func selectable(crd *apiextensionsv1.CustomResourceDefinition) (errs field.ErrorList) {
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
func servable(crd *apiextensionsv1.CustomResourceDefinition) (errs field.ErrorList) {
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

// definitionStatusStrategy is the strategy of /status: it keeps the spec. As in
// Kubernetes, metadata can be changed.
type definitionStatusStrategy struct{ definitionStrategy }

func (definitionStatusStrategy) Update(ctx context.Context, obj, old runtime.Object) ([]string, field.ErrorList) {
	crd, in, errs := internal(obj)
	if errs != nil {
		return nil, errs
	}
	before, was, errs := internal(old)
	if errs != nil {
		return nil, errs
	}
	library := customresourcedefinition.NewStatusStrategy(definitionScheme())
	library.PrepareForUpdate(ctx, in, was)
	if errs := library.ValidateUpdate(ctx, in, was); len(errs) > 0 {
		return nil, errs
	}
	errs = external(in, crd)
	keepFirstStorage(crd, before)
	return nil, errs
}

// internal returns a definition and a copy of it in the library's internal version. Without the
// copy the two versions would share memory.
func internal(obj runtime.Object) (*apiextensionsv1.CustomResourceDefinition, *apiextensions.CustomResourceDefinition, field.ErrorList) {
	crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return nil, nil, field.ErrorList{field.TypeInvalid(nil, obj, "must be a CustomResourceDefinition")}
	}
	in := &apiextensions.CustomResourceDefinition{}
	return crd, in, refuse(apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd.DeepCopy(), in, nil))
}

// external sets crd to a copy of in.
func external(in *apiextensions.CustomResourceDefinition, crd *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	return refuse(apiextensionsv1.Convert_apiextensions_CustomResourceDefinition_To_v1_CustomResourceDefinition(in.DeepCopy(), crd, nil))
}

// refuse is the error about a definition that cannot be converted.
func refuse(err error) field.ErrorList {
	if err == nil {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec"), field.OmitValueType{}, err.Error())}
}
