package builtin

import (
	"context"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/exeunt/exeunt/lifecycle"
)

// kubernetes is a strategy of Kubernetes. It decides about objects of internal types.
type kubernetes interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
}

// strategy applies a strategy of Kubernetes to objects of the version that is served. It
// converts them to the internal type for all steps of a write, and back.
type strategy struct {
	kubernetes
	// info says to which resource and version the rules apply. The library's validation reads
	// it from the context, which has none for objects that no request sent.
	info         *genericrequest.RequestInfo
	subresources []string // of info, as a list
	// prepare, if set, does what Kubernetes does elsewhere (in an admission plugin, in the
	// storage of a kind). Old is nil for a new object.
	prepare func(obj, old runtime.Object)
	// forgives, if set, reports whether this server accepts what an error of Kubernetes' validation refuses.
	forgives func(*field.Error) bool
	// warning is sent to clients that create an object, if it is not empty.
	warning    string
	undeclared bool // as in def
}

var _ lifecycle.Strategy = &strategy{}

// newStrategy returns the strategy of a resource, or of a subresource of it.
func newStrategy(rules kubernetes, resource schema.GroupVersionResource, subresource string) *strategy {
	s := &strategy{kubernetes: rules, info: &genericrequest.RequestInfo{
		IsResourceRequest: true, APIGroup: resource.Group, APIVersion: resource.Version, Resource: resource.Resource, Subresource: subresource,
	}}
	if subresource != "" {
		s.subresources = []string{subresource}
	}
	return s
}

// internal returns obj as its internal type. The two share memory.
func internal(obj runtime.Object) (runtime.Object, error) {
	return Scheme().UnsafeConvertToVersion(obj, runtime.InternalGroupVersioner)
}

// Change lets f change obj as an internal type. An object that cannot be converted stays as it
// is: its validation refuses it.
func Change(obj runtime.Object, f func(in runtime.Object)) {
	in, err := internal(obj)
	if err != nil {
		return
	}
	f(in)
	external(in, obj)
}

// Answer sets obj to what f makes of it as an internal type.
func Answer(obj runtime.Object, f func(in runtime.Object) (runtime.Object, error)) error {
	in, err := internal(obj)
	if err != nil {
		return err
	}
	out, err := f(in)
	if err == nil {
		external(out, obj)
	}
	return err
}

// external sets obj to in, of the internal type of obj. What the internal type does not have is
// removed: a Secret's stringData.
func external(in, obj runtime.Object) {
	gvk := obj.GetObjectKind().GroupVersionKind()
	reflect.ValueOf(obj).Elem().SetZero()
	if err := Scheme().Convert(in, obj, nil); err != nil {
		panic(err) // cannot happen: each internal type has a conversion
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk)
}

// refuse is the error about an object that has no internal form: an annotation that stands for
// fields does not parse.
func refuse(obj runtime.Object, err error) field.ErrorList {
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "annotations"), obj.GetObjectKind().GroupVersionKind().Kind, err.Error())}
}

// context returns a context with what the rules read from it. Without a client they get a user
// without a name, which holds no rights.
func (s *strategy) context(ctx context.Context) context.Context {
	if _, ok := genericrequest.UserFrom(ctx); !ok {
		ctx = genericrequest.WithUser(ctx, &user.DefaultInfo{})
	}
	return genericrequest.WithRequestInfo(ctx, s.info)
}

// Create sets defaults first, which the rules take for granted: an object from the
// archive, or one that the server makes, may lack them.
func (s *strategy) Create(ctx context.Context, obj runtime.Object) ([]string, field.ErrorList) {
	Scheme().Default(obj)
	if s.prepare != nil {
		s.prepare(obj, nil)
	}
	in, err := internal(obj)
	if err != nil {
		return nil, refuse(obj, err)
	}
	ctx = s.context(ctx)
	s.PrepareForCreate(ctx, in)
	errs := s.decide(ctx, s.Validate(ctx, in), in, nil, obj, nil)
	if len(errs) > 0 {
		return nil, errs
	}
	warnings := s.WarningsOnCreate(ctx, in)
	if s.warning != "" {
		warnings = append(warnings, s.warning)
	}
	return warnings, nil
}

// Update sets defaults in both objects, as Kubernetes does when it reads them. It does not
// validate the name, which cannot change: an object with a name from an older rule stays writable.
func (s *strategy) Update(ctx context.Context, obj, old runtime.Object) ([]string, field.ErrorList) {
	Scheme().Default(obj)
	Scheme().Default(old)
	if s.prepare != nil {
		s.prepare(obj, old)
	}
	in, err := internal(obj)
	if err != nil {
		return nil, refuse(obj, err)
	}
	was, err := internal(old)
	if err != nil {
		return nil, refuse(old, err)
	}
	ctx = s.context(ctx)
	s.PrepareForUpdate(ctx, in, was)
	if at := accessor(was).GetDeletionTimestamp(); at != nil { // the rules of a pod's status clear it, and rely on this
		accessor(in).SetDeletionTimestamp(at)
	}
	errs := s.decide(ctx, s.ValidateUpdate(ctx, in, was), in, was, obj, old)
	if accessor(obj).GetName() == accessor(old).GetName() {
		errs = slices.DeleteFunc(errs, func(err *field.Error) bool { return err.Field == "metadata.name" })
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return s.WarningsOnUpdate(ctx, in, was), nil
}

// decide completes the errors of Kubernetes' written rules about in, and brings in back to obj.
// It sets the defaults that follow from what the rules have set: Kubernetes sets them whenever it
// reads an object (the labels of a Job).
//
// The rules that Kubernetes declares in its types decide about obj. As in the library's
// ValidateDeclaratively, errors that only repeat them are removed; that one would copy and convert
// the objects first, which are of the version that is served already.
func (s *strategy) decide(ctx context.Context, errs field.ErrorList, in, was, obj, old runtime.Object) field.ErrorList {
	if len(errs) == 0 {
		s.Canonicalize(in)
	}
	external(in, obj)
	Scheme().Default(obj)
	if s.forgives != nil {
		errs = slices.DeleteFunc(errs, s.forgives)
	}
	d, ok := s.kubernetes.(rest.DeclarativeValidationStrategy)
	if !ok || s.undeclared {
		return errs
	}
	config := d.DeclarativeValidationConfig(ctx, in, was)
	var declared field.ErrorList
	if old == nil {
		declared = Scheme().Validate(ctx, config.Options, obj, s.subresources...)
	} else {
		declared = Scheme().ValidateUpdate(ctx, config.Options, obj, old, s.subresources...)
	}
	enforced := validate.FilterEnforcedDeclarativeErrors(ctx, declared, true)
	errs = validate.FilterCoveredHandwrittenErrors(ctx, errs.MarkFromImperative(), enforced, true, config.NormalizationRules...)
	return append(errs, enforced...)
}

// accessor returns the metadata of an object of a built-in kind, which all have.
func accessor(obj runtime.Object) metav1.Object {
	m, err := meta.Accessor(obj)
	if err != nil {
		panic(err)
	}
	return m
}

// AllowCreateOnUpdate is false for subresources, which never create an object.
func (s *strategy) AllowCreateOnUpdate(ctx context.Context) bool {
	return s.subresources == nil && s.kubernetes.AllowCreateOnUpdate(ctx)
}

// review is the strategy of a kind that is answered and never stored. Who answers has the rules.
type review struct{ namespaced bool }

var _ lifecycle.Strategy = review{}

func (r review) NamespaceScoped() bool { return r.namespaced }

func (review) Create(context.Context, runtime.Object) ([]string, field.ErrorList) { return nil, nil }

func (review) Update(context.Context, runtime.Object, runtime.Object) ([]string, field.ErrorList) {
	return nil, nil
}

func (review) AllowCreateOnUpdate(context.Context) bool      { return false }
func (review) AllowUnconditionalUpdate(context.Context) bool { return true }
