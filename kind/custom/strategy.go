package custom

import (
	"context"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/exeunt/exeunt/lifecycle"
)

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
