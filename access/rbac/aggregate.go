package rbac

import (
	"cmp"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Aggregate returns the rules of an aggregated ClusterRole: those of all roles that
// one of its selectors selects, in order of names, each rule once. The order is that
// of kube-controller-manager, so that both may run and neither undoes the other's
// work. ok is false for a role that is not aggregated, or has an invalid selector.
func Aggregate(r *rbacv1.ClusterRole, all map[string]*rbacv1.ClusterRole) (rules []rbacv1.PolicyRule, ok bool) {
	if r.AggregationRule == nil {
		return nil, false
	}
	rules = []rbacv1.PolicyRule{}
	for _, selected := range r.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&selected)
		if err != nil {
			return nil, false
		}
		for _, source := range sortedRoles(all) {
			if source.Name == r.Name || !selector.Matches(labels.Set(source.Labels)) {
				continue
			}
			for _, rule := range source.Rules {
				if !slices.ContainsFunc(rules, func(known rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(known, rule) }) {
					rules = append(rules, rule)
				}
			}
		}
	}
	return rules, true
}

func sortedRoles(all map[string]*rbacv1.ClusterRole) []*rbacv1.ClusterRole {
	var roles []*rbacv1.ClusterRole
	for _, r := range all {
		roles = append(roles, r)
	}
	slices.SortFunc(roles, func(a, b *rbacv1.ClusterRole) int { return cmp.Compare(a.Name, b.Name) })
	return roles
}
