package builtin

import (
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// countTable has one column with a number.
func countTable[P metav1.Object](name string, count func(P) int) table[P] {
	return table[P]{
		columns: columns(number(name, "How many there are.")),
		row:     func(obj P, now time.Time) []any { return []any{obj.GetName(), int64(count(obj)), age(obj, now)} },
	}
}

// policyTable shows how many rules a policy has, and which kind parametrises them.
func policyTable[P metav1.Object](name string, read func(P) (int, *admissionv1.ParamKind)) table[P] {
	return table[P]{
		columns: columns(number(name, "How many there are."), text("ParamKind", "The kind of the policy's parameters.")),
		row: func(obj P, now time.Time) []any {
			rules, kind := read(obj)
			param := "<unset>"
			if kind != nil {
				param = kind.APIVersion + "/" + kind.Kind
			}
			return []any{obj.GetName(), int64(rules), param, age(obj, now)}
		},
	}
}

// policyBindingTable shows which policy a binding binds, and to which parameters.
func policyBindingTable[P metav1.Object](read func(P) (string, *admissionv1.ParamRef)) table[P] {
	return table[P]{
		columns: columns(text("PolicyName", "The policy that the binding binds."), text("ParamRef", "The parameters of the policy.")),
		row: func(obj P, now time.Time) []any {
			policy, ref := read(obj)
			param := "<unset>"
			switch {
			case ref != nil && ref.Namespace != "":
				param = ref.Namespace + "/" + or(ref.Name, "*")
			case ref != nil:
				param = or(ref.Name, "*")
			}
			return []any{obj.GetName(), policy, param, age(obj, now)}
		},
	}
}
