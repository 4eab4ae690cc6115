package builtin

import (
	"context"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/lifecycle"
)

// strategy is the lifecycle.Strategy of a def. It implements what all kinds share: the
// rules of metadata, the status that clients cannot write, the generation.
//
// Its methods expect objects of the def's own type and panic for another type, which is a
// programming error.
type strategy[T any, P pointerTo[T]] struct {
	def def[T, P]
}

var _ lifecycle.Strategy = &strategy[metav1.PartialObjectMetadata, *metav1.PartialObjectMetadata]{}

func (s *strategy[T, P]) NamespaceScoped() bool { return !s.def.cluster }

func (s *strategy[T, P]) PrepareForCreate(_ context.Context, obj runtime.Object) {
	p := obj.(P)
	if s.def.parts != nil && !s.def.keepStatus {
		if _, status := s.def.parts(p); status != nil {
			reflect.ValueOf(status).Elem().SetZero()
		}
	}
	if s.def.generation {
		p.SetGeneration(1)
	}
	if s.def.prepareCreate != nil {
		s.def.prepareCreate(p)
	}
}

func (s *strategy[T, P]) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	p, o := obj.(P), old.(P)
	if s.def.parts != nil {
		_, status := s.def.parts(p)
		_, oldStatus := s.def.parts(o)
		keep(status, oldStatus)
	}
	if s.def.prepareUpdate != nil {
		s.def.prepareUpdate(p, o)
	}
	p.SetGeneration(o.GetGeneration())
	if s.def.generation && s.moved(p, o) {
		p.SetGeneration(o.GetGeneration() + 1)
	}
}

func (s *strategy[T, P]) moved(p, o P) bool {
	if s.def.moves != nil {
		return s.def.moves(p, o)
	}
	spec, _ := s.def.parts(p)
	oldSpec, _ := s.def.parts(o)
	return !equality.Semantic.DeepEqual(spec, oldSpec)
}

// keep copies *old to *part. Both may be nil. The copy is shallow: strategies never change
// old, and the caller must not change it either.
func keep(part, old any) {
	if part != nil {
		reflect.ValueOf(part).Elem().Set(reflect.ValueOf(old).Elem())
	}
}

func (s *strategy[T, P]) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	p := obj.(P)
	var errs field.ErrorList
	if !s.def.ephemeral { // objects that are never stored need no name
		errs = apivalidation.ValidateObjectMetaAccessor(p, !s.def.cluster, s.nameRule(), field.NewPath("metadata"))
		errs = append(errs, validateFinalizers(p.GetFinalizers(), nil)...)
	}
	if s.def.validate != nil {
		errs = append(errs, s.def.validate(p)...)
	}
	if s.def.validateCreate != nil {
		errs = append(errs, s.def.validateCreate(p)...)
	}
	return errs
}

func (s *strategy[T, P]) nameRule() apivalidation.ValidateNameFunc {
	if s.def.name != nil {
		return s.def.name
	}
	return apivalidation.NameIsDNSSubdomain
}

func (s *strategy[T, P]) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	if s.def.warn == nil {
		return nil
	}
	return s.def.warn(obj.(P))
}

// ValidateUpdate validates the new object as for a create, and then the change. It does not
// validate the name, which cannot change: an object with a name from an older rule stays
// writable.
func (s *strategy[T, P]) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	p, o := obj.(P), old.(P)
	errs := validateMetaUpdate(p, o)
	if s.def.validate != nil {
		errs = append(errs, s.def.validate(p)...)
	}
	if s.def.validateUpdate != nil {
		errs = append(errs, s.def.validateUpdate(p, o)...)
	}
	return errs
}

func validateMetaUpdate(p, o metav1.Object) field.ErrorList {
	errs := apivalidation.ValidateObjectMetaAccessorUpdate(p, o, field.NewPath("metadata"))
	return append(errs, validateFinalizers(p.GetFinalizers(), o.GetFinalizers())...)
}

// validateFinalizers refuses new finalizers without a domain, except the system's own.
func validateFinalizers(finalizers, old []string) field.ErrorList {
	var errs field.ErrorList
	for i, name := range finalizers {
		switch {
		case strings.Contains(name, "/"), slices.Contains(old, name):
		case name == string(corev1.FinalizerKubernetes), name == metav1.FinalizerOrphanDependents, name == metav1.FinalizerDeleteDependents:
		default:
			errs = append(errs, field.Invalid(field.NewPath("metadata", "finalizers").Index(i), name, "name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	return errs
}

func (s *strategy[T, P]) WarningsOnUpdate(_ context.Context, obj, old runtime.Object) []string {
	return nil
}

func (s *strategy[T, P]) Canonicalize(obj runtime.Object) {
	if s.def.canonicalize != nil {
		s.def.canonicalize(obj.(P))
	}
}

func (s *strategy[T, P]) AllowCreateOnUpdate(context.Context) bool { return s.def.createOnUpdate }

func (s *strategy[T, P]) AllowUnconditionalUpdate(context.Context) bool { return !s.def.conditional }

// statusStrategy is the strategy of /status: it keeps the spec.
type statusStrategy[T any, P pointerTo[T]] struct {
	*strategy[T, P]
}

func (s *statusStrategy[T, P]) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	p, o := obj.(P), old.(P)
	spec, _ := s.def.parts(p)
	oldSpec, _ := s.def.parts(o)
	keep(spec, oldSpec)
	p.SetGeneration(o.GetGeneration())
	if s.def.prepareStatus != nil {
		s.def.prepareStatus(p, o)
	}
}

func (s *statusStrategy[T, P]) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	p, o := obj.(P), old.(P)
	errs := validateMetaUpdate(p, o)
	if s.def.validateStatus != nil {
		errs = append(errs, s.def.validateStatus(p, o)...)
	}
	return errs
}

func (s *statusStrategy[T, P]) Canonicalize(runtime.Object) {}

// AllowCreateOnUpdate is false: /status never creates an object.
func (s *statusStrategy[T, P]) AllowCreateOnUpdate(context.Context) bool { return false }
