package builtin

import (
	"fmt"
	"slices"
	"sort"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var specPath = field.NewPath("spec")

// The helpers below return a list of errors, empty for a valid value, so that each rule is
// one append.

// invalids returns one Invalid error per message.
func invalids(path *field.Path, value any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, m := range messages {
		errs = append(errs, field.Invalid(path, value, m))
	}
	return errs
}

// requiredName requires a value that passes check.
func requiredName(path *field.Path, value string, check func(string) []string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return invalids(path, value, check(value))
}

// required requires a value.
func required(path *field.Path, value string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return nil
}

// oneOf requires one of the given values.
func oneOf[T ~string](path *field.Path, value T, allowed ...T) field.ErrorList {
	if slices.Contains(allowed, value) {
		return nil
	}
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}

// oneOfPtr is oneOf for an optional value.
func oneOfPtr[T ~string](path *field.Path, value *T, allowed ...T) field.ErrorList {
	if value == nil {
		return nil
	}
	return oneOf(path, *value, allowed...)
}

// notNegative validates an optional number.
func notNegative[T int32 | int64](path *field.Path, value *T) field.ErrorList {
	if value == nil {
		return nil
	}
	return apivalidation.ValidateNonnegativeField(int64(*value), path)
}

// positive validates an optional number.
func positive[T int32 | int64](path *field.Path, value *T) field.ErrorList {
	if value == nil || *value > 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, *value, "must be greater than 0")}
}

// portNumber validates a port.
func portNumber(path *field.Path, port int32) field.ErrorList {
	return invalids(path, port, validation.IsValidPortNum(int(port)))
}

// portOrName validates a port number or name.
func portOrName(path *field.Path, port intstr.IntOrString) field.ErrorList {
	if port.Type == intstr.Int {
		return invalids(path, port.IntVal, validation.IsValidPortNum(port.IntValue()))
	}
	return invalids(path, port.StrVal, validation.IsValidPortName(port.StrVal))
}

// quantityNotNegative validates a quantity.
func quantityNotNegative(path *field.Path, q resource.Quantity) field.ErrorList {
	if q.Sign() < 0 {
		return field.ErrorList{field.Invalid(path, q.String(), "must be greater than or equal to 0")}
	}
	return nil
}

// amountOrPercent validates a number or a percentage.
func amountOrPercent(path *field.Path, value *intstr.IntOrString) field.ErrorList {
	if value == nil {
		return nil
	}
	if value.Type == intstr.Int {
		return apivalidation.ValidateNonnegativeField(int64(value.IntValue()), path)
	}
	if msgs := validation.IsValidPercent(value.StrVal); len(msgs) > 0 {
		return invalids(path, value, msgs)
	}
	return nil
}

// percentAtMost100 refuses percentages above 100.
func percentAtMost100(path *field.Path, value *intstr.IntOrString) field.ErrorList {
	if value == nil || value.Type != intstr.String || len(validation.IsValidPercent(value.StrVal)) > 0 {
		return nil
	}
	if n, err := intstr.GetScaledValueFromIntOrPercent(value, 100, false); err != nil || n > 100 {
		return field.ErrorList{field.Invalid(path, value, "must not be greater than 100%")}
	}
	return nil
}

// unchanged requires that a field has its old value.
func unchanged(path *field.Path, value, old any) field.ErrorList {
	if equality.Semantic.DeepEqual(value, old) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, value, "field is immutable")}
}

// selectorOf validates a required, non-empty label selector that must match the labels of
// its pods. what names the kind in the message.
func selectorOf(path *field.Path, selector *metav1.LabelSelector, podLabels map[string]string, what string) field.ErrorList {
	if selector == nil {
		// No selector matches no labels: Kubernetes reports both.
		return field.ErrorList{field.Required(path.Child("selector"), ""), unmatched(path, podLabels)}
	}
	errs := labelSelector(path.Child("selector"), selector)
	if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		errs = append(errs, field.Invalid(path.Child("selector"), selector, "empty selector is invalid for "+what))
	}
	if len(errs) > 0 {
		return errs
	}
	match, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return field.ErrorList{field.Invalid(path.Child("selector"), selector, err.Error())}
	}
	if !match.Matches(labels.Set(podLabels)) {
		return field.ErrorList{unmatched(path, podLabels)}
	}
	return nil
}

func unmatched(path *field.Path, podLabels map[string]string) *field.Error {
	return field.Invalid(path.Child("template", "metadata", "labels"), podLabels, "`selector` does not match template `labels`")
}

// labelSelector validates the syntax of an optional label selector.
func labelSelector(path *field.Path, selector *metav1.LabelSelector) field.ErrorList {
	return metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, path)
}

// validateReplicaCounts validates the counts in a status: none is negative or greater than
// the number of replicas.
func validateReplicaCounts(replicas int32, counts map[string]int32) field.ErrorList {
	path := field.NewPath("status")
	errs := notNegative(path.Child("replicas"), &replicas)
	for _, name := range sortedKeys(counts) {
		count := counts[name]
		errs = append(errs, notNegative(path.Child(name), &count)...)
		if count > replicas {
			errs = append(errs, field.Invalid(path.Child(name), count, "cannot be greater than status.replicas"))
		}
	}
	return errs
}

// sortedKeys returns the keys in a fixed order, so that errors are reproducible.
func sortedKeys[K ~string, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool { return keys[i] < keys[j] })
	return keys
}

// tooLong refuses a text above a limit.
func tooLong(path *field.Path, value string, limit int) field.ErrorList {
	if len(value) <= limit {
		return nil
	}
	return field.ErrorList{field.Invalid(path, "", fmt.Sprintf("can have at most %d characters", limit))}
}
