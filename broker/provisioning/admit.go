package provisioning

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/object"
)

// admit checks a new declaration against blueprint, credential and namespace:
// kind.Kind.Admit. The answer may be outdated when the object is stored; then
// the broker refuses the declaration, and the object's status says so.
func (a *API) admit(ctx context.Context, obj runtime.Object) error {
	r, err := decode[resource](obj)
	if err != nil {
		return object.BadRequestf("read ProvisionedResource: %v", err)
	}
	err = a.admission.Admit(ctx, r.request())
	var refused broker.FieldErrors
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &refused):
		a.log.Warn("cannot check a declaration", "resource", r.Metadata.Name, "namespace", r.Metadata.Namespace, "error", err)
		return apierrors.NewServiceUnavailable(fmt.Sprintf("the management cluster cannot be asked whether the resource can be provisioned: %v", err))
	}
	for _, f := range refused {
		// Kubernetes' own errors, which every client knows.
		if f.Field == "project" && errors.Is(f, broker.ErrNamespaceUnavailable) {
			if strings.HasSuffix(f.Detail, string(broker.NamespaceTerminating)) {
				return object.Errorf(object.Terminating, "%s", f.Detail)
			}
			return object.Errorf(object.NoNamespace, "%s", f.Detail)
		}
	}
	return object.InvalidFields(translate(refused, resourceField))
}

// translate converts field errors of the domain to those of the API. It does
// not repeat values: they may be large, or secret.
func translate(err error, where func(string) *field.Path) (errs field.ErrorList) {
	var refused broker.FieldErrors
	if !errors.As(err, &refused) {
		return nil
	}
	for _, f := range refused {
		kind := field.ErrorTypeInvalid
		switch {
		case errors.Is(f, broker.ErrBlueprintNotFound), errors.Is(f, broker.ErrCloudCredentialNotFound):
			kind = field.ErrorTypeNotFound
		case f.Detail == "is required":
			kind = field.ErrorTypeRequired
		}
		errs = append(errs, &field.Error{Type: kind, Field: where(f.Field).String(), BadValue: field.OmitValueType{}, Detail: f.Detail})
	}
	return errs
}

// resourceField is the API path of a field of the domain's ProvisionRequest.
func resourceField(name string) *field.Path {
	spec := field.NewPath("spec")
	switch name {
	case "id":
		return field.NewPath("metadata", "uid")
	case "name":
		return field.NewPath("metadata", "name")
	case "project":
		return field.NewPath("metadata", "namespace")
	case "blueprint":
		return spec.Child("blueprintRef")
	case "blueprint.name":
		return spec.Child("blueprintRef", "name")
	case "blueprint.version":
		return spec.Child("blueprintRef", "version")
	case "credential":
		return spec.Child("credentialRef", "name")
	}
	return spec.Child(name)
}
