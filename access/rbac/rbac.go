// Package rbac decides by Kubernetes' roles and bindings. It is pure: an Index is
// built from objects and answers from memory, so that a decision costs microseconds
// and no query. It does not know where the objects come from (access/directory
// follows the store) and who the client is (access).
//
// Begin with Index. escalation.go says who may grant what, Aggregate computes
// aggregated ClusterRoles. The rules are matched by Kubernetes' own functions; the index
// is ours, because Kubernetes' authorizer reads every binding for each request.
package rbac

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	rbachelper "k8s.io/kubernetes/pkg/apis/rbac/v1"
	authorizerrbac "k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"
)

// Objects are the stored roles and bindings, by name.
type Objects struct {
	Roles               map[types.NamespacedName]*rbacv1.Role
	ClusterRoles        map[string]*rbacv1.ClusterRole
	RoleBindings        map[types.NamespacedName]*rbacv1.RoleBinding
	ClusterRoleBindings map[string]*rbacv1.ClusterRoleBinding
}

// Index answers what each user may do. It is immutable.
type Index struct {
	objects Objects
	grants  map[subject][]grant
}

// subject is a user or a group, in one namespace, or in all if namespace is empty.
type subject struct {
	group           bool
	name, namespace string
}

// grant is one role that a binding gives to a subject.
type grant struct {
	rules  []rbacv1.PolicyRule
	reason string // why a request is allowed
	err    error  // set if the role does not exist
}

// NewIndex builds an index. It keeps the objects: do not change them afterwards.
func NewIndex(o Objects) *Index {
	x := &Index{objects: o, grants: map[subject][]grant{}}
	resolve := func(ref rbacv1.RoleRef, namespace, reason string) grant {
		rules, err := x.rulesOf(ref, namespace)
		return grant{rules, reason, err}
	}
	for _, b := range o.ClusterRoleBindings {
		x.add(b.Subjects, "", resolve(b.RoleRef, "", fmt.Sprintf("ClusterRoleBinding %q of ClusterRole %q", b.Name, b.RoleRef.Name)))
	}
	for _, b := range o.RoleBindings {
		reason := fmt.Sprintf("RoleBinding %q of %s %q", b.Name+"/"+b.Namespace, b.RoleRef.Kind, b.RoleRef.Name)
		x.add(b.Subjects, b.Namespace, resolve(b.RoleRef, b.Namespace, reason))
	}
	return x
}

// Objects returns what the index was built from. Do not change it.
func (x *Index) Objects() Objects { return x.objects }

// add gives a role to the subjects. A ServiceAccount is the user that its token
// authenticates; without a namespace it is in the binding's.
func (x *Index) add(subjects []rbacv1.Subject, namespace string, g grant) {
	for _, s := range subjects {
		key := subject{name: s.Name, namespace: namespace, group: s.Kind == rbacv1.GroupKind}
		reason := fmt.Sprintf("RBAC: allowed by %s to %s %q", g.reason, s.Kind, s.Name)
		if s.Kind == rbacv1.ServiceAccountKind {
			home := cmp.Or(s.Namespace, namespace)
			if home == "" {
				continue
			}
			key.name = serviceaccount.MakeUsername(home, s.Name)
			reason = fmt.Sprintf("RBAC: allowed by %s to ServiceAccount %q", g.reason, s.Name+"/"+home)
		}
		x.grants[key] = append(x.grants[key], grant{g.rules, reason, g.err})
	}
}

// rulesOf returns the rules of a role that a binding in the namespace refers to.
func (x *Index) rulesOf(ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	switch ref.Kind {
	case "Role":
		if r := x.objects.Roles[types.NamespacedName{Namespace: namespace, Name: ref.Name}]; r != nil && namespace != "" {
			return r.Rules, nil
		}
		return nil, fmt.Errorf("role.rbac.authorization.k8s.io %q not found", ref.Name)
	case "ClusterRole":
		if r := x.objects.ClusterRoles[ref.Name]; r != nil {
			return r.Rules, nil
		}
		return nil, fmt.Errorf("clusterrole.rbac.authorization.k8s.io %q not found", ref.Name)
	}
	return nil, fmt.Errorf("unsupported role reference kind: %q", ref.Kind)
}

// visit calls f for the grants of the user that apply in the namespace, until f
// returns false. Grants for all namespaces come first.
func (x *Index) visit(u user.Info, namespace string, f func(grant) bool) {
	for _, scope := range []string{"", namespace} {
		if !x.visitScope(u, scope, f) || namespace == "" {
			return
		}
	}
}

func (x *Index) visitScope(u user.Info, namespace string, f func(grant) bool) bool {
	for _, g := range x.grants[subject{name: u.GetName(), namespace: namespace}] {
		if !f(g) {
			return false
		}
	}
	for _, name := range u.GetGroups() {
		for _, g := range x.grants[subject{group: true, name: name, namespace: namespace}] {
			if !f(g) {
				return false
			}
		}
	}
	return true
}

// Authorize allows what a rule of the user's roles covers, and has no opinion
// otherwise: the reason then names the bound roles that do not exist.
func (x *Index) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	u := a.GetUser()
	if u == nil {
		return authorizer.DecisionNoOpinion, "", nil
	}
	decision, reason := authorizer.DecisionNoOpinion, ""
	x.visit(u, a.GetNamespace(), func(g grant) bool {
		if !authorizerrbac.RulesAllow(a, g.rules...) {
			return true
		}
		decision, reason = authorizer.DecisionAllow, g.reason
		return false
	})
	if decision == authorizer.DecisionNoOpinion {
		if err := x.missing(u, a.GetNamespace()); err != nil {
			reason = fmt.Sprintf("RBAC: %v", err)
		}
	}
	return decision, reason, nil
}

// RulesFor lists the rules of the user in a namespace.
func (x *Index) RulesFor(_ context.Context, u user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	var resources []authorizer.ResourceRuleInfo
	var paths []authorizer.NonResourceRuleInfo
	seen := map[string]bool{}
	for _, r := range x.rules(u, namespace) {
		if key := rbachelper.CompactString(r); seen[key] {
			continue
		} else {
			seen[key] = true
		}
		if len(r.Resources) > 0 {
			resources = append(resources, &authorizer.DefaultResourceRuleInfo{
				Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames,
			})
		}
		if len(r.NonResourceURLs) > 0 {
			paths = append(paths, &authorizer.DefaultNonResourceRuleInfo{Verbs: r.Verbs, NonResourceURLs: r.NonResourceURLs})
		}
	}
	return resources, paths, false, x.missing(u, namespace)
}

// missing returns an error that names the roles which bindings give to the user, and which do
// not exist; nil if there are none.
func (x *Index) missing(u user.Info, namespace string) error {
	var errs []error
	x.visit(u, namespace, func(g grant) bool {
		if g.err != nil {
			errs = append(errs, g.err)
		}
		return true
	})
	return utilerrors.NewAggregate(errs)
}

// rules returns all rules of the user in a namespace.
func (x *Index) rules(u user.Info, namespace string) (rules []rbacv1.PolicyRule) {
	if slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		rules = slices.Clone(fullAuthority)
	}
	x.visit(u, namespace, func(g grant) bool {
		rules = append(rules, g.rules...)
		return true
	})
	return rules
}

// fullAuthority are the rights to everything.
var fullAuthority = []rbacv1.PolicyRule{
	{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
	{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
}

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
	return slices.SortedFunc(maps.Values(all), func(a, b *rbacv1.ClusterRole) int { return cmp.Compare(a.Name, b.Name) })
}
