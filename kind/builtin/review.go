package builtin

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/kind"
)

// reviewKinds are questions in the form of objects. They are answered and never stored, so
// they need no name.
func reviewKinds() []*kind.Kind {
	return []*kind.Kind{
		def[authenticationv1.TokenReview, *authenticationv1.TokenReview]{
			gv: authenticationv1.SchemeGroupVersion, plural: "tokenreviews", cluster: true, ephemeral: true,
			validate: func(r *authenticationv1.TokenReview) field.ErrorList {
				if r.Spec.Token == "" {
					return field.ErrorList{field.Required(field.NewPath("spec", "token"), "")}
				}
				return nil
			},
		}.kind(),
		def[authenticationv1.SelfSubjectReview, *authenticationv1.SelfSubjectReview]{
			gv: authenticationv1.SchemeGroupVersion, plural: "selfsubjectreviews", cluster: true, ephemeral: true,
		}.kind(),
		def[authorizationv1.SubjectAccessReview, *authorizationv1.SubjectAccessReview]{
			gv: authorizationv1.SchemeGroupVersion, plural: "subjectaccessreviews", cluster: true, ephemeral: true,
			validate: func(r *authorizationv1.SubjectAccessReview) field.ErrorList { return validateAccessReview(&r.Spec) },
		}.kind(),
		def[authorizationv1.LocalSubjectAccessReview, *authorizationv1.LocalSubjectAccessReview]{
			gv: authorizationv1.SchemeGroupVersion, plural: "localsubjectaccessreviews", ephemeral: true,
			validate: validateLocalAccessReview,
		}.kind(),
		def[authorizationv1.SelfSubjectAccessReview, *authorizationv1.SelfSubjectAccessReview]{
			gv: authorizationv1.SchemeGroupVersion, plural: "selfsubjectaccessreviews", cluster: true, ephemeral: true,
			validate: func(r *authorizationv1.SelfSubjectAccessReview) field.ErrorList {
				return validateAttributes(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
			},
		}.kind(),
		def[authorizationv1.SelfSubjectRulesReview, *authorizationv1.SelfSubjectRulesReview]{
			gv: authorizationv1.SchemeGroupVersion, plural: "selfsubjectrulesreviews", cluster: true, ephemeral: true,
		}.kind(),
	}
}

func validateAccessReview(spec *authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	errs := validateAttributes(spec.ResourceAttributes, spec.NonResourceAttributes)
	if spec.User == "" && len(spec.Groups) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "user"), spec.User, "at least one of user or group must be specified"))
	}
	return errs
}

func validateLocalAccessReview(r *authorizationv1.LocalSubjectAccessReview) field.ErrorList {
	errs := validateAccessReview(&r.Spec)
	if r.Spec.NonResourceAttributes != nil {
		errs = append(errs, field.Invalid(field.NewPath("spec", "nonResourceAttributes"), r.Spec.NonResourceAttributes, "disallowed on this kind of request"))
	}
	if attributes := r.Spec.ResourceAttributes; attributes != nil && attributes.Namespace != r.Namespace {
		errs = append(errs, field.Invalid(field.NewPath("spec", "resourceAttributes", "namespace"), attributes.Namespace, "must match metadata.namespace"))
	}
	return errs
}

func validateAttributes(resource *authorizationv1.ResourceAttributes, other *authorizationv1.NonResourceAttributes) field.ErrorList {
	if (resource == nil) == (other == nil) {
		return field.ErrorList{field.Invalid(field.NewPath("spec"), other, "exactly one of nonResourceAttributes or resourceAttributes must be specified")}
	}
	return nil
}
