package rbac

import (
	"context"
	"errors"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/registry/rbac/validation"
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

// onlyCollects reports whether an update changes only what the collector needs to
// change: finalizers and ownerReferences.
func onlyCollects(obj, old runtime.Object) bool {
	from, err := meta.Accessor(old)
	if err != nil {
		return false // a create has no old object
	}
	next := obj.DeepCopyObject()
	to, err := meta.Accessor(next)
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
	return refuse(resource, name, w.covers(ctx, namespace, rules))
}

func (w grantCheck) clusterRole(ctx context.Context, r *rbacv1.ClusterRole, aggregates bool) error {
	const resource = "clusterroles"
	if w.may(ctx, "escalate", resource, "", r.Name) {
		return nil
	}
	if err := w.covers(ctx, "", r.Rules); err != nil {
		return refuse(resource, r.Name, err)
	}
	// An aggregation gathers rules of roles that do not exist yet.
	if aggregates && w.covers(ctx, "", fullAuthority) != nil {
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
	return refuse(resource, name, w.covers(ctx, namespace, rules))
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

// covers returns an error that names the rights which the user does not hold.
func (w grantCheck) covers(ctx context.Context, namespace string, rules []rbacv1.PolicyRule) error {
	ctx = genericrequest.WithNamespace(genericrequest.WithUser(ctx, w.user), namespace)
	return validation.ConfirmNoEscalation(ctx, held{index: w.index}, rules)
}

// held resolves the rules of a user, which is all that ConfirmNoEscalation asks for.
type held struct {
	validation.AuthorizationRuleResolver
	index *Index
}

func (h held) RulesFor(_ context.Context, u user.Info, namespace string) ([]rbacv1.PolicyRule, error) {
	return h.index.rules(u, namespace), nil
}
