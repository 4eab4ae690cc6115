package builtin

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"
)

// expressions compiles the CEL expressions of one webhook or policy, so that a wrong one
// is refused when it is written and not when it is needed.
type expressions struct {
	compiler *cel.CompositedCompiler
	declared cel.OptionalVariableDeclarations
}

func newExpressions(params bool) *expressions {
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		panic(err) // cannot happen: the environment is constant
	}
	return &expressions{compiler, cel.OptionalVariableDeclarations{HasParams: params, HasAuthorizer: true}}
}

// compile checks one expression.
func (e *expressions) compile(at *field.Path, x cel.ExpressionAccessor, declared cel.OptionalVariableDeclarations) field.ErrorList {
	if blank(x.GetExpression()) {
		return field.ErrorList{field.Required(at, "")}
	}
	result := e.compiler.Compiler.CompileCELExpression(x, declared, environment.NewExpressions)
	if result.Error != nil {
		return field.ErrorList{field.Invalid(at, x.GetExpression(), result.Error.Detail)}
	}
	return nil
}

func (e *expressions) condition(at *field.Path, c *admissionv1.MatchCondition) field.ErrorList {
	return e.compile(at, (*matchconditions.MatchCondition)(c), e.declared)
}

// variables also makes the variables known to the expressions that follow.
func (e *expressions) variables(at *field.Path, variables []admissionv1.Variable) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	for i, v := range variables {
		item := at.Index(i)
		if names.Has(v.Name) {
			errs = append(errs, field.Duplicate(item.Child("name"), v.Name))
		}
		names.Insert(v.Name)
		errs = append(errs, requiredName(item.Child("name"), v.Name, validation.IsCIdentifier)...)
		x := &validating.Variable{Name: v.Name, Expression: v.Expression}
		errs = append(errs, e.compile(item.Child("expression"), x, e.declared)...)
		e.compiler.CompileAndStoreVariable(x, e.declared, environment.NewExpressions)
	}
	return errs
}

func (e *expressions) validation(at *field.Path, v admissionv1.Validation) field.ErrorList {
	errs := e.compile(at.Child("expression"), &validating.ValidationCondition{Expression: v.Expression}, e.declared)
	if v.MessageExpression != "" {
		declared := e.declared
		declared.HasAuthorizer = false
		errs = append(errs, e.compile(at.Child("messageExpression"), &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}, declared)...)
	}
	return append(errs, oneOfPtr(at.Child("reason"), v.Reason, metav1.StatusReasonForbidden, metav1.StatusReasonInvalid,
		metav1.StatusReasonRequestEntityTooLarge, metav1.StatusReasonUnauthorized)...)
}

func (e *expressions) annotation(at *field.Path, a admissionv1.AuditAnnotation) field.ErrorList {
	return e.compile(at, &validating.AuditAnnotationCondition{Key: a.Key, ValueExpression: a.ValueExpression}, e.declared)
}

func (e *expressions) mutation(at *field.Path, m admissionv1.Mutation) field.ErrorList {
	declared := e.declared
	declared.HasPatchTypes = true
	switch {
	case m.PatchType == admissionv1.PatchTypeJSONPatch && m.JSONPatch != nil && m.ApplyConfiguration == nil:
		return e.compile(at.Child("jsonPatch", "expression"), &patch.JSONPatchCondition{Expression: m.JSONPatch.Expression}, declared)
	case m.PatchType == admissionv1.PatchTypeApplyConfiguration && m.ApplyConfiguration != nil && m.JSONPatch == nil:
		return e.compile(at.Child("applyConfiguration", "expression"), &patch.ApplyConfigurationCondition{Expression: m.ApplyConfiguration.Expression}, declared)
	case m.PatchType == admissionv1.PatchTypeJSONPatch:
		return field.ErrorList{field.Required(at.Child("jsonPatch"), "must be set, and it alone, for the patch type JSONPatch")}
	case m.PatchType == admissionv1.PatchTypeApplyConfiguration:
		return field.ErrorList{field.Required(at.Child("applyConfiguration"), "must be set, and it alone, for the patch type ApplyConfiguration")}
	}
	return oneOf(at.Child("patchType"), m.PatchType, admissionv1.PatchTypeApplyConfiguration, admissionv1.PatchTypeJSONPatch)
}
