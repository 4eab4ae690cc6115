package rbac

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/component-helpers/auth/rbac/validation"
)

// CheckGrant refuses a write of a role or a binding that gives rights which the user
// does not hold. The verb escalate on the role, or bind on the role that a binding
// refers to, permits it. Old is nil on create. Other kinds pass.
//
// It answers from this index and authorizer, both as of now: a write that was allowed
// stays allowed if the user loses the rights in the same instant, as in Kubernetes.
func (x *Index) CheckGrant(ctx context.Context, authz authorizer.UnconditionalAuthorizer, u user.Info, obj, old runtime.Object) error {
	if slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) || onlyCollects(obj, old) {
		return nil
	}
	w := grantCheck{index: x, authz: authz, user: u}
	switch r := obj.(type) {
	case *rbacv1.Role:
		return w.role(ctx, "roles", r.Namespace, r.Name, r.Rules)
	case *rbacv1.ClusterRole:
		was, _ := old.(*rbacv1.ClusterRole)
		return w.clusterRole(ctx, r, r.AggregationRule != nil || was != nil && was.AggregationRule != nil)
	case *rbacv1.RoleBinding:
		return w.binding(ctx, "rolebindings", r.Namespace, r.Name, r.RoleRef)
	case *rbacv1.ClusterRoleBinding:
		return w.binding(ctx, "clusterrolebindings", "", r.Name, r.RoleRef)
	}
	return nil
}

// onlyCollects says whether an update changes only what the collector needs to
// change: finalizers and ownerReferences.
func onlyCollects(obj, old runtime.Object) bool {
	if old == nil {
		return false
	}
	next := obj.DeepCopyObject()
	to, err := meta.Accessor(next)
	if err != nil {
		return false
	}
	from, err := meta.Accessor(old)
	if err != nil {
		return false
	}
	to.SetFinalizers(from.GetFinalizers())
	to.SetOwnerReferences(from.GetOwnerReferences())
	to.SetManagedFields(from.GetManagedFields())
	to.SetResourceVersion(from.GetResourceVersion())
	next.GetObjectKind().SetGroupVersionKind(old.GetObjectKind().GroupVersionKind())
	return equality.Semantic.DeepEqual(next, old)
}

type grantCheck struct {
	index *Index
	authz authorizer.UnconditionalAuthorizer
	user  user.Info
}

func (w grantCheck) role(ctx context.Context, resource, namespace, name string, rules []rbacv1.PolicyRule) error {
	if w.may(ctx, "escalate", resource, namespace, name) {
		return nil
	}
	return refuse(resource, name, w.covers(namespace, rules))
}

func (w grantCheck) clusterRole(ctx context.Context, r *rbacv1.ClusterRole, aggregates bool) error {
	const resource = "clusterroles"
	if w.may(ctx, "escalate", resource, "", r.Name) {
		return nil
	}
	if err := w.covers("", r.Rules); err != nil {
		return refuse(resource, r.Name, err)
	}
	// An aggregation gathers rules of roles that do not exist yet.
	if aggregates && w.covers("", fullAuthority) != nil {
		return refuse(resource, r.Name, errors.New("must have cluster-admin privileges to use the aggregationRule"))
	}
	return nil
}

func (w grantCheck) binding(ctx context.Context, resource, namespace, name string, ref rbacv1.RoleRef) error {
	referred := map[string]string{"Role": "roles", "ClusterRole": "clusterroles"}[ref.Kind]
	if w.may(ctx, "bind", referred, namespace, ref.Name) {
		return nil
	}
	rules, err := w.index.rulesOf(ref, namespace)
	if err != nil {
		return apierrors.NewNotFound(schema.GroupResource{Group: rbacv1.GroupName, Resource: resource}, ref.Name)
	}
	return refuse(resource, name, w.covers(namespace, rules))
}

func refuse(resource, name string, err error) error {
	if err == nil {
		return nil
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: rbacv1.GroupName, Resource: resource}, name, err)
}

func (w grantCheck) may(ctx context.Context, verb, resource, namespace, name string) bool {
	decision, _, _ := w.authz.Authorize(ctx, authorizer.AttributesRecord{
		User: w.user, Verb: verb, APIGroup: rbacv1.GroupName, APIVersion: "*", Resource: resource,
		Namespace: namespace, Name: name, ResourceRequest: true,
	})
	return decision == authorizer.DecisionAllow
}

// covers returns an error that lists the rules which the user does not hold.
func (w grantCheck) covers(namespace string, rules []rbacv1.PolicyRule) error {
	ok, missing := validation.Covers(w.index.rules(w.user, namespace), rules)
	if ok {
		return nil
	}
	var lines []string
	for _, r := range compact(missing) {
		lines = append(lines, describe(r))
	}
	sort.Strings(lines)
	return errors.New(fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n", w.user.GetName(), w.user.GetGroups()) +
		strings.Join(slices.Compact(lines), "\n"))
}

// compact joins the verbs of resource rules that are equal otherwise. Covers returns one rule
// per verb. Kubernetes lists each verb of a URL by itself.
func compact(rules []rbacv1.PolicyRule) (out []rbacv1.PolicyRule) {
	for _, r := range rules {
		i := slices.IndexFunc(out, func(known rbacv1.PolicyRule) bool {
			return slices.Equal(known.APIGroups, r.APIGroups) && slices.Equal(known.Resources, r.Resources) &&
				slices.Equal(known.ResourceNames, r.ResourceNames) && len(known.NonResourceURLs)+len(r.NonResourceURLs) == 0
		})
		if i < 0 {
			r.Verbs = slices.Clone(r.Verbs)
			out = append(out, r)
			continue
		}
		out[i].Verbs = append(out[i].Verbs, r.Verbs...)
	}
	return out
}

// describe writes a rule as Kubernetes does: {APIGroups:["apps"], …, Verbs:["get"]}.
func describe(r rbacv1.PolicyRule) string {
	var parts []string
	for _, p := range []struct {
		name   string
		values []string
	}{
		{"APIGroups", r.APIGroups}, {"Resources", r.Resources}, {"NonResourceURLs", r.NonResourceURLs},
		{"ResourceNames", r.ResourceNames}, {"Verbs", r.Verbs},
	} {
		if len(p.values) > 0 {
			parts = append(parts, fmt.Sprintf("%s:%q", p.name, p.values))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
