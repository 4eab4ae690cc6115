package builtin

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"

	"github.com/exeunt/exeunt/kind"
)

// rbacKinds accept any path segment as a name ("system:node"), and can be created by PUT:
// bootstrap tools use both.
func rbacKinds() []*kind.Kind {
	return []*kind.Kind{
		def[rbacv1.Role, *rbacv1.Role]{
			gv: rbacv1.SchemeGroupVersion, plural: "roles",
			createOnUpdate: true, name: path.ValidatePathSegmentName, plain: true,
			validate:     validateRole,
			canonicalize: func(r *rbacv1.Role) { r.Rules = withoutEmpty(r.Rules) },
		}.kind(),
		def[rbacv1.ClusterRole, *rbacv1.ClusterRole]{
			gv: rbacv1.SchemeGroupVersion, plural: "clusterroles", cluster: true,
			createOnUpdate: true, name: path.ValidatePathSegmentName, plain: true,
			validate:     validateClusterRole,
			canonicalize: func(r *rbacv1.ClusterRole) { r.Rules = withoutEmpty(r.Rules) },
		}.kind(),
		def[rbacv1.RoleBinding, *rbacv1.RoleBinding]{
			gv: rbacv1.SchemeGroupVersion, plural: "rolebindings",
			createOnUpdate: true, name: path.ValidatePathSegmentName,
			validate:       validateRoleBinding,
			validateUpdate: validateRoleBindingUpdate,
			table:          roleBindingTable,
		}.kind(),
		def[rbacv1.ClusterRoleBinding, *rbacv1.ClusterRoleBinding]{
			gv: rbacv1.SchemeGroupVersion, plural: "clusterrolebindings", cluster: true,
			createOnUpdate: true, name: path.ValidatePathSegmentName,
			validate:       validateClusterRoleBinding,
			validateUpdate: validateClusterRoleBindingUpdate,
			table:          clusterRoleBindingTable,
		}.kind(),
	}
}

// withoutEmpty turns an empty list into none: Kubernetes answers "rules": null for both.
func withoutEmpty(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	if len(rules) == 0 {
		return nil
	}
	return rules
}
