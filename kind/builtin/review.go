package builtin

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/authentication"
	"k8s.io/kubernetes/pkg/apis/authorization"
	"k8s.io/kubernetes/pkg/apis/authorization/validation"
)

// reviewDefs are questions in the form of objects. They are answered and never stored, so
// they need no name.
func reviewDefs() []def {
	return []def{
		{obj: &authenticationv1.TokenReview{}, plural: "tokenreviews", ephemeral: true, validate: func(in runtime.Object) field.ErrorList {
			if in.(*authentication.TokenReview).Spec.Token == "" {
				return field.ErrorList{field.Required(field.NewPath("spec", "token"), "")}
			}
			return nil
		}},
		{obj: &authenticationv1.SelfSubjectReview{}, plural: "selfsubjectreviews", ephemeral: true},
		{obj: &authorizationv1.SubjectAccessReview{}, plural: "subjectaccessreviews", ephemeral: true, validate: func(in runtime.Object) field.ErrorList {
			return validation.ValidateSubjectAccessReview(in.(*authorization.SubjectAccessReview))
		}},
		{
			obj: &authorizationv1.LocalSubjectAccessReview{}, plural: "localsubjectaccessreviews", ephemeral: true, namespaced: true,
			validate: func(in runtime.Object) field.ErrorList {
				return validation.ValidateLocalSubjectAccessReview(in.(*authorization.LocalSubjectAccessReview))
			},
		},
		{obj: &authorizationv1.SelfSubjectAccessReview{}, plural: "selfsubjectaccessreviews", ephemeral: true, validate: func(in runtime.Object) field.ErrorList {
			return validation.ValidateSelfSubjectAccessReview(in.(*authorization.SelfSubjectAccessReview))
		}},
		{obj: &authorizationv1.SelfSubjectRulesReview{}, plural: "selfsubjectrulesreviews", ephemeral: true},
	}
}
