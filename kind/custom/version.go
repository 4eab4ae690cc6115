package custom

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// version builds one served version of the family.
func (f *family) version(k *kind.Kind, v *apiextensionsv1.CustomResourceDefinitionVersion) (*kind.Version, error) {
	gvk := f.gvk(v.Name)
	var err error
	out := &kind.Version{
		Kind: k,
		GVK:  gvk,
		New: func() runtime.Object {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(gvk)
			return u
		},
		NewList: func() runtime.Object {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(gvk.GroupVersion().WithKind(k.ListName))
			return list
		},
		Decode:           func(body []byte, rv string) (runtime.Object, error) { return f.decode(v.Name, body, rv) },
		Encode:           f.encode,
		Raw:              f.raw && !f.marks && (!f.hooked || v.Name == f.storage),
		Strategy:         f.strategy(v.Name, func(b built) steps { return b.object }),
		ResetFields:      map[fieldpath.APIVersion]*fieldpath.Set{},
		SelectableFields: selectableFields(*v),
		Attributes:       f.attributes(v.Name),
		Wire:             f.wire(*v),
		Warning:          f.deprecation(*v),
		Schema:           func() *spec.Schema { return f.openAPI(v.Name) },
	}
	if f.hooked {
		out.DecodeAll = func(ctx context.Context, stored []object.Object) ([]runtime.Object, error) {
			bodies := make([]storedBody, len(stored))
			for i, o := range stored {
				bodies[i] = storedBody{o.Body, o.ResourceVersion()}
			}
			return f.decodeAll(ctx, v.Name, bodies)
		}
		out.DecodeStored = func(body []byte, rv string) (runtime.Object, error) { return f.decodeStored(storedBody{body, rv}) }
	}
	if out.Table, err = tableconvertor.New(columns(*v)); err != nil {
		return nil, err
	}
	if sub := v.Subresources; sub != nil && sub.Status != nil {
		out.Status = f.strategy(v.Name, func(b built) steps { return b.status })
		out.ResetFields[apiVersion(gvk.GroupVersion().String())] = fieldpath.NewSet(fieldpath.MakePathOrDie("status"))
		out.StatusResetFields = f.statusResetFields()
	}
	if sub := v.Subresources; sub != nil && sub.Scale != nil {
		out.Scale = scalePaths(sub.Scale)
	}
	return out, nil
}

type apiVersion = fieldpath.APIVersion

// decode decodes a stored body into a version. With the conversion strategy None the
// version in which the body was written does not matter: decode does not prune by it, so
// fields that an older storage version stored stay visible in the versions that have them.
func (f *family) decode(version string, body []byte, resourceVersion string) (runtime.Object, error) {
	if f.hooked {
		u, err := f.decodeStored(storedBody{body, resourceVersion})
		if err != nil {
			return nil, err
		}
		if u.GroupVersionKind().Version == version {
			return u, nil
		}
		// Not as a list of one: the error of a webhook names what it was given.
		converted, err := f.convert.ConvertToVersion(u, f.gvk(version).GroupVersion())
		if err != nil {
			return nil, err
		}
		u = converted.(*unstructured.Unstructured)
		return u, f.coerceStored(u)
	}
	if object.MayHaveVersion(body) { // another replica may mark already
		var err error
		if _, body, err = object.CutVersion(body); err != nil {
			return nil, fmt.Errorf("decode %s: %w", f.kind, err)
		}
	}
	return f.decodeAs(version, f.storage, body, resourceVersion)
}

// decodeAs decodes a body as an object of a version, with the defaults of the version in
// which it was written.
func (f *family) decodeAs(version, written string, body []byte, resourceVersion string) (*unstructured.Unstructured, error) {
	u, err := object.DecodeUnstructured(body, resourceVersion, f.gvk(version))
	if err != nil {
		return nil, err
	}
	s, err := f.structural(written)
	if err != nil {
		return nil, err
	}
	defaulting.Default(u.Object, s)
	return u, f.coerceStored(u)
}

// coerceStored makes a stored or converted object fit the schema of its version.
func (f *family) coerceStored(u *unstructured.Unstructured) error {
	if _, err := (coercer{family: f, lenient: true}).apply(u); err != nil {
		return fmt.Errorf("decode %s: %w", f.kind, err)
	}
	return nil
}

// encode converts an object of any version to its stored form, which has only the
// fields of the storage version.
func (f *family) encode(obj runtime.Object) ([]byte, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("encode %s: %T is not a custom object", f.kind, obj)
	}
	stored := u.DeepCopy()
	if f.hooked && u.GroupVersionKind().Version != f.storage {
		converted, err := f.convert.ConvertToVersion(stored, f.gvk(f.storage).GroupVersion())
		if err != nil {
			return nil, err
		}
		stored = converted.(*unstructured.Unstructured)
	}
	stored.SetGroupVersionKind(f.gvk(f.storage))
	if _, err := (coercer{family: f}).apply(stored); err != nil {
		return nil, fmt.Errorf("encode %s: %w", f.kind, err)
	}
	body, err := object.Encode(stored)
	if err != nil || !f.marks {
		return body, err
	}
	return object.WithVersion(body, f.storage)
}

// columns returns the declared columns, or the age for a version without any.
func columns(v apiextensionsv1.CustomResourceDefinitionVersion) []apiextensionsv1.CustomResourceColumnDefinition {
	if len(v.AdditionalPrinterColumns) > 0 {
		return v.AdditionalPrinterColumns
	}
	return []apiextensionsv1.CustomResourceColumnDefinition{{
		Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp",
		Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
	}}
}

func scalePaths(s *apiextensionsv1.CustomResourceSubresourceScale) *kind.Scale {
	out := &kind.Scale{
		SpecReplicasPath:   strings.TrimPrefix(s.SpecReplicasPath, "."),
		StatusReplicasPath: strings.TrimPrefix(s.StatusReplicasPath, "."),
	}
	if s.LabelSelectorPath != nil {
		out.LabelSelectorPath = strings.TrimPrefix(*s.LabelSelectorPath, ".")
	}
	return out
}

// statusResetFields are the fields that a write to /status keeps, in every version that
// has it: managed fields are kept in the version in which they were written.
func (f *family) statusResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	out := map[fieldpath.APIVersion]*fieldpath.Set{}
	for _, v := range f.crd.Spec.Versions {
		if v.Subresources != nil && v.Subresources.Status != nil {
			out[apiVersion(f.gvk(v.Name).GroupVersion().String())] = fieldpath.NewSet(
				fieldpath.MakePathOrDie("metadata"), fieldpath.MakePathOrDie("spec"))
		}
	}
	return out
}

// deprecation returns the warning of a deprecated version: its own text, or one that
// names the newest version to use.
func (f *family) deprecation(v apiextensionsv1.CustomResourceDefinitionVersion) string {
	if !v.Deprecated {
		return ""
	}
	if v.DeprecationWarning != nil {
		return *v.DeprecationWarning
	}
	newest := v.Name
	for _, other := range f.crd.Spec.Versions {
		if other.Served && !other.Deprecated && version.CompareKubeAwareVersionStrings(other.Name, newest) > 0 {
			newest = other.Name
		}
	}
	text := fmt.Sprintf("%s/%s %s is deprecated", f.kind.Group, v.Name, f.kind.Kind)
	if newest != v.Name {
		text += fmt.Sprintf("; use %s/%s %s", f.kind.Group, newest, f.kind.Kind)
	}
	return text
}

// built are the library's strategies for one version. To build them compiles every CEL rule of the
// schema.
type built struct {
	object, status steps
	attributes     func(runtime.Object) (labels.Set, fields.Set, error)
}

// checkRules reports the errors of schemas that New finds before it compiles their rules.
func checkRules(crd *apiextensionsv1.CustomResourceDefinition) error {
	for _, v := range crd.Spec.Versions {
		if _, _, _, err := validators(v); v.Served && err != nil {
			return fmt.Errorf("version %s: %w", v.Name, err)
		}
	}
	return nil
}

// validators returns those of the schema of a version and of its status, which is nil if there is none.
func validators(v apiextensionsv1.CustomResourceDefinitionVersion) (whole, statusOnly validation.SchemaValidator, status *apiextensions.CustomResourceSubresourceStatus, err error) {
	props, err := schemaProps(v)
	if err != nil {
		return nil, nil, nil, err
	}
	if whole, _, err = validation.NewSchemaValidator(props); err != nil {
		return nil, nil, nil, err
	}
	if sub := v.Subresources; sub != nil && sub.Status != nil {
		status = &apiextensions.CustomResourceSubresourceStatus{}
		if s, ok := props.Properties["status"]; ok {
			statusOnly, _, err = validation.NewSchemaValidator(&s)
		}
	}
	return whole, statusOnly, status, err
}

// build makes the strategies of a version.
func (f *family) build(version string, s *structuralschema.Structural) (built, error) {
	crd, err := f.read()
	if err != nil {
		return built{}, err
	}
	for _, v := range crd.Spec.Versions {
		if v.Name != version {
			continue
		}
		whole, statusOnly, status, err := validators(v)
		if err != nil {
			return built{}, err
		}
		var scale *apiextensions.CustomResourceSubresourceScale
		if sub := v.Subresources; sub != nil && sub.Scale != nil {
			scale = &apiextensions.CustomResourceSubresourceScale{
				SpecReplicasPath:   sub.Scale.SpecReplicasPath,
				StatusReplicasPath: sub.Scale.StatusReplicasPath,
				LabelSelectorPath:  sub.Scale.LabelSelectorPath,
			}
		}
		library := customresource.NewStrategy(typer{messages()}, f.namespaced(), f.gvk(version), whole, statusOnly, s, status, scale, v.SelectableFields)
		return built{object: library, status: customresource.NewStatusStrategy(library), attributes: library.GetAttrs}, nil
	}
	return built{}, fmt.Errorf("%s has no version %s", f.kind, version)
}

func (f *family) namespaced() bool { return f.crd.Spec.Scope == apiextensionsv1.NamespaceScoped }

// attributes returns a function that returns the labels and the selectable fields of an object of the version.
func (f *family) attributes(version string) func(runtime.Object) (labels.Set, fields.Set, error) {
	return func(obj runtime.Object) (labels.Set, fields.Set, error) {
		b, err := f.rules(version)
		if err != nil {
			return nil, nil, err
		}
		return b.attributes(obj)
	}
}

func (f *family) strategy(version string, part func(built) steps) lifecycle.Strategy {
	return lazy{f.namespaced(), func() (steps, field.ErrorList) {
		b, err := f.rules(version)
		if err != nil {
			return nil, field.ErrorList{field.InternalError(nil, err)}
		}
		return part(b), nil
	}}
}

// steps is a strategy of the library.
type steps interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
}

// lazy takes the steps of a strategy of the library, which it builds when a method other than
// NamespaceScoped is first called.
type lazy struct {
	namespaced bool
	get        func() (steps, field.ErrorList)
}

func (l lazy) NamespaceScoped() bool { return l.namespaced }

func (l lazy) Create(ctx context.Context, obj runtime.Object) ([]string, field.ErrorList) {
	s, errs := l.get()
	if errs != nil {
		return nil, errs
	}
	s.PrepareForCreate(ctx, obj)
	if errs := s.Validate(ctx, obj); len(errs) > 0 {
		return nil, errs
	}
	warnings := s.WarningsOnCreate(ctx, obj)
	s.Canonicalize(obj)
	return warnings, nil
}

func (l lazy) Update(ctx context.Context, obj, old runtime.Object) ([]string, field.ErrorList) {
	s, errs := l.get()
	if errs != nil {
		return nil, errs
	}
	s.PrepareForUpdate(ctx, obj, old)
	if errs := s.ValidateUpdate(ctx, obj, old); len(errs) > 0 {
		return nil, errs
	}
	warnings := s.WarningsOnUpdate(ctx, obj, old)
	s.Canonicalize(obj)
	return warnings, nil
}

// Those of the library's strategies.
func (l lazy) AllowCreateOnUpdate(context.Context) bool { return false }

func (l lazy) AllowUnconditionalUpdate(context.Context) bool { return false }
