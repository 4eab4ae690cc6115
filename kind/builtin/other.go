package builtin

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/kind"
)

func coordinationKinds() []*kind.Kind {
	return []*kind.Kind{def[coordinationv1.Lease, *coordinationv1.Lease]{
		gv: coordinationv1.SchemeGroupVersion, plural: "leases",
		createOnUpdate: true,
		conditional:    true, // two candidates must not both win
		validate:       validateLease,
		table:          leaseTable,
	}.kind()}
}

func discoveryKinds() []*kind.Kind {
	return []*kind.Kind{def[discoveryv1.EndpointSlice, *discoveryv1.EndpointSlice]{
		gv: discoveryv1.SchemeGroupVersion, plural: "endpointslices",
		generation: true,
		// There is no spec: all fields except metadata count, and the labels, which name
		// the slice's service.
		moves: func(obj, old *discoveryv1.EndpointSlice) bool {
			a, b := *obj, *old
			a.ObjectMeta, b.ObjectMeta = metav1.ObjectMeta{Labels: obj.Labels}, metav1.ObjectMeta{Labels: old.Labels}
			a.TypeMeta, b.TypeMeta = metav1.TypeMeta{}, metav1.TypeMeta{}
			return !equality.Semantic.DeepEqual(a, b)
		},
		validate:       validateEndpointSlice,
		validateUpdate: validateEndpointSliceUpdate,
		table:          endpointSliceTable,
	}.kind()}
}

func policyKinds() []*kind.Kind {
	return []*kind.Kind{def[policyv1.PodDisruptionBudget, *policyv1.PodDisruptionBudget]{
		gv: policyv1.SchemeGroupVersion, plural: "poddisruptionbudgets", short: []string{"pdb"},
		conditional: true,
		parts:       func(b *policyv1.PodDisruptionBudget) (any, any) { return &b.Spec, &b.Status },
		generation:  true,
		validate:    validateDisruptionBudget,
		table:       disruptionBudgetTable,
	}.kind()}
}

func schedulingKinds() []*kind.Kind {
	return []*kind.Kind{def[schedulingv1.PriorityClass, *schedulingv1.PriorityClass]{
		gv: schedulingv1.SchemeGroupVersion, plural: "priorityclasses", short: []string{"pc"}, cluster: true,
		generation:     true,
		moves:          func(_, _ *schedulingv1.PriorityClass) bool { return false }, // it stays 1
		validateCreate: validatePriorityClass,
		validateUpdate: validatePriorityClassUpdate,
		table:          priorityClassTable,
	}.kind()}
}
