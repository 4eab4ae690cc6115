package custom

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
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
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// version builds one served version of the family.
func (f *family) version(k *kind.Kind, v *apiextensionsv1.CustomResourceDefinitionVersion) (*kind.Version, error) {
	gvk := f.gvk(v.Name)
	rules, err := f.strategies(*v)
	if err != nil {
		return nil, err
	}
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
		Strategy:         rules.object(),
		ResetFields:      map[fieldpath.APIVersion]*fieldpath.Set{},
		SelectableFields: selectableFields(*v),
		Attributes:       rules.attributes,
		Wire:             f.wire(*v),
		Warning:          f.deprecation(*v),
		Schema:           f.openAPI(v.Name),
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
		out.Status = rules.status()
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
		all, err := f.decodeAll(context.Background(), version, []storedBody{{body, resourceVersion}})
		if err != nil {
			return nil, err
		}
		return all[0], nil
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
	defaulting.Default(u.Object, f.schemas[written])
	return u, f.coerceStored(u)
}

// coerceStored makes a stored or converted object fit the schema of its version.
func (f *family) coerceStored(u *unstructured.Unstructured) error {
	if _, err := (coercer{kind: f.kind, schemas: f.schemas, lenient: true}).apply(u); err != nil {
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
	if _, err := (coercer{kind: f.kind, schemas: f.schemas}).apply(stored); err != nil {
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

// strategies are the library's strategies for one version. They are built at their
// first use, because that compiles every CEL rule of the schema: a server with a
// thousand definitions would otherwise need minutes to start.
type strategies struct {
	namespaced bool
	build      func() built // cached by sync.OnceValue
}

type built struct {
	object, status steps
	attributes     func(runtime.Object) (labels.Set, fields.Set, error)
}

// strategies prepares the strategies of a version. It reports all errors of the schema;
// only the compiling is left for later.
func (f *family) strategies(v apiextensionsv1.CustomResourceDefinitionVersion) (*strategies, error) {
	props, err := schemaProps(v)
	if err != nil {
		return nil, err
	}
	whole, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		return nil, err
	}
	var (
		statusOnly validation.SchemaValidator // nil: the schema has no status
		status     *apiextensions.CustomResourceSubresourceStatus
		scale      *apiextensions.CustomResourceSubresourceScale
	)
	if sub := v.Subresources; sub != nil && sub.Status != nil {
		status = &apiextensions.CustomResourceSubresourceStatus{}
		if s, ok := props.Properties["status"]; ok {
			if statusOnly, _, err = validation.NewSchemaValidator(&s); err != nil {
				return nil, err
			}
		}
	}
	if sub := v.Subresources; sub != nil && sub.Scale != nil {
		scale = &apiextensions.CustomResourceSubresourceScale{
			SpecReplicasPath:   sub.Scale.SpecReplicasPath,
			StatusReplicasPath: sub.Scale.StatusReplicasPath,
			LabelSelectorPath:  sub.Scale.LabelSelectorPath,
		}
	}
	namespaced := f.crd.Spec.Scope == apiextensionsv1.NamespaceScoped
	return &strategies{namespaced: namespaced, build: sync.OnceValue(func() built {
		s := customresource.NewStrategy(typer{messages()}, namespaced, f.gvk(v.Name),
			whole, statusOnly, f.schemas[v.Name], status, scale, v.SelectableFields)
		return built{object: s, status: customresource.NewStatusStrategy(s), attributes: s.GetAttrs}
	})}, nil
}

func (s *strategies) object() lifecycle.Strategy {
	return lazy{s.namespaced, func() steps { return s.build().object }}
}

func (s *strategies) status() lifecycle.Strategy {
	return lazy{s.namespaced, func() steps { return s.build().status }}
}

// attributes returns the labels and the selectable fields of an object of this version.
func (s *strategies) attributes(obj runtime.Object) (labels.Set, fields.Set, error) {
	return s.build().attributes(obj)
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
	get        func() steps
}

func (l lazy) NamespaceScoped() bool { return l.namespaced }

func (l lazy) Create(ctx context.Context, obj runtime.Object) ([]string, field.ErrorList) {
	s := l.get()
	s.PrepareForCreate(ctx, obj)
	if errs := s.Validate(ctx, obj); len(errs) > 0 {
		return nil, errs
	}
	warnings := s.WarningsOnCreate(ctx, obj)
	s.Canonicalize(obj)
	return warnings, nil
}

func (l lazy) Update(ctx context.Context, obj, old runtime.Object) ([]string, field.ErrorList) {
	s := l.get()
	s.PrepareForUpdate(ctx, obj, old)
	if errs := s.ValidateUpdate(ctx, obj, old); len(errs) > 0 {
		return nil, errs
	}
	warnings := s.WarningsOnUpdate(ctx, obj, old)
	s.Canonicalize(obj)
	return warnings, nil
}

func (l lazy) AllowCreateOnUpdate(ctx context.Context) bool {
	return l.get().AllowCreateOnUpdate(ctx)
}

func (l lazy) AllowUnconditionalUpdate(ctx context.Context) bool {
	return l.get().AllowUnconditionalUpdate(ctx)
}
