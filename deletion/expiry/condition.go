package expiry

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// condition is a CEL expression about an object, with the library and the limits of admission policies.
type condition struct{ evaluator cel.ConditionEvaluator }

// maxExpression bounds the text of an expression, in bytes: so that a write with one is cheap to check.
const maxExpression = 4096

func compile(expression string) (*condition, error) {
	if len(expression) > maxExpression {
		return nil, fmt.Errorf("condition: it has more than %d bytes", maxExpression)
	}
	compiler := cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	evaluator := compiler.CompileCondition([]cel.ExpressionAccessor{&matchconditions.MatchCondition{Name: "condition", Expression: expression}},
		cel.OptionalVariableDeclarations{}, environment.StoredExpressions)
	if errs := evaluator.CompilationErrors(); len(errs) > 0 {
		return nil, fmt.Errorf("condition: %w", errs[0])
	}
	return &condition{evaluator}, nil
}

// holds evaluates the expression.
func (c *condition) holds(ctx context.Context, obj runtime.Object, gvk schema.GroupVersionKind) (bool, error) {
	about := &admission.VersionedAttributes{VersionedKind: gvk, VersionedObject: admission.NewLazyObject(obj)}
	results, _, err := c.evaluator.ForInput(ctx, about, &admissionv1.AdmissionRequest{}, cel.OptionalVariableBindings{}, nil, celconfig.RuntimeCELCostBudgetMatchConditions)
	switch {
	case err != nil:
		return false, err
	case results[0].Error != nil:
		return false, results[0].Error
	}
	holds, ok := results[0].EvalResult.Value().(bool)
	if !ok {
		return false, fmt.Errorf("the condition is %v, not true or false", results[0].EvalResult.Value())
	}
	return holds, nil
}
