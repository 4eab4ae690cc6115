package rbac

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

func rule(verbs, groups, resources, names string) rbacv1.PolicyRule {
	split := func(text string) []string {
		fields := strings.Fields(text)
		for i, f := range fields {
			if f == "core" {
				fields[i] = ""
			}
		}
		return fields
	}
	return rbacv1.PolicyRule{Verbs: split(verbs), APIGroups: split(groups), Resources: split(resources), ResourceNames: split(names)}
}

func clusterRoleOf(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
}

func bound(kind, name string, subjects ...rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "b-" + name}, RoleRef: rbacv1.RoleRef{Kind: kind, Name: name}, Subjects: subjects}
}

func boundIn(namespace, kind, name string, subjects ...rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "b-" + name}, RoleRef: rbacv1.RoleRef{Kind: kind, Name: name}, Subjects: subjects}
}

func userNamed(name string) rbacv1.Subject  { return rbacv1.Subject{Kind: "User", Name: name} }
func groupNamed(name string) rbacv1.Subject { return rbacv1.Subject{Kind: "Group", Name: name} }

// index is a small cluster: bob reads ConfigMaps in shop, the group ops reads nodes and
// scales everything, ann has every right in shop, a ServiceAccount of shop reads one Secret.
func index() *Index {
	o := Objects{
		Roles: map[types.NamespacedName]*rbacv1.Role{}, ClusterRoles: map[string]*rbacv1.ClusterRole{},
		RoleBindings: map[types.NamespacedName]*rbacv1.RoleBinding{}, ClusterRoleBindings: map[string]*rbacv1.ClusterRoleBinding{},
	}
	for _, r := range []*rbacv1.ClusterRole{
		clusterRoleOf("all", rule("*", "*", "*", ""), rbacv1.PolicyRule{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}}),
		clusterRoleOf("nodes", rule("get list", "core", "nodes", ""), rule("update", "*", "*/scale", ""),
			rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics", "/logs/*"}}),
		clusterRoleOf("one-secret", rule("get update list", "core", "secrets", "one")),
		clusterRoleOf("roles", rule("create update get", rbacv1.GroupName, "roles rolebindings clusterroles clusterrolebindings", "")),
		clusterRoleOf("binder", rule("bind", rbacv1.GroupName, "clusterroles", "all")),
		clusterRoleOf("escalator", rule("escalate", rbacv1.GroupName, "roles clusterroles", "")),
	} {
		o.ClusterRoles[r.Name] = r
	}
	o.Roles[types.NamespacedName{Namespace: "shop", Name: "reader"}] = &rbacv1.Role{Rules: []rbacv1.PolicyRule{rule("get list watch", "core", "configmaps pods/log", "")}}
	for _, b := range []*rbacv1.ClusterRoleBinding{
		bound("ClusterRole", "nodes", groupNamed("ops")),
		bound("ClusterRole", "gone", userNamed("ann")),
		bound("ClusterRole", "roles", userNamed("bob"), userNamed("binder"), userNamed("escalator")),
		bound("ClusterRole", "binder", userNamed("binder")),
		bound("ClusterRole", "escalator", userNamed("escalator")),
	} {
		o.ClusterRoleBindings[b.Name] = b
	}
	for _, b := range []*rbacv1.RoleBinding{
		boundIn("shop", "Role", "reader", userNamed("bob")),
		boundIn("other", "Role", "reader", userNamed("bob")), // other has no such Role
		boundIn("shop", "ClusterRole", "all", userNamed("ann")),
		boundIn("shop", "ClusterRole", "one-secret", rbacv1.Subject{Kind: "ServiceAccount", Name: "web"}),
	} {
		o.RoleBindings[types.NamespacedName{Namespace: b.Namespace, Name: b.Name}] = b
	}
	return NewIndex(o)
}

// TestSameNameInTwoNamespaces: a Role is the one of its own namespace, also if others, or a
// ClusterRole, have its name.
func TestSameNameInTwoNamespaces(t *testing.T) {
	o := Objects{
		Roles: map[types.NamespacedName]*rbacv1.Role{}, RoleBindings: map[types.NamespacedName]*rbacv1.RoleBinding{},
		ClusterRoles:        map[string]*rbacv1.ClusterRole{"same": clusterRoleOf("same", rule("get", "core", "services", ""))},
		ClusterRoleBindings: map[string]*rbacv1.ClusterRoleBinding{"same": bound("ClusterRole", "same", userNamed("bob"))},
	}
	resources := map[string]string{"a": "configmaps", "b": "secrets", "c": "pods"}
	for namespace, resource := range resources {
		o.Roles[types.NamespacedName{Namespace: namespace, Name: "same"}] = &rbacv1.Role{Rules: []rbacv1.PolicyRule{rule("get", "core", resource, "")}}
		o.RoleBindings[types.NamespacedName{Namespace: namespace, Name: "b"}] = boundIn(namespace, "Role", "same", userNamed("ann"))
		o.RoleBindings[types.NamespacedName{Namespace: namespace, Name: "c"}] = boundIn(namespace, "ClusterRole", "same", userNamed("carl"))
	}
	x := NewIndex(o)
	may := func(name, resource, namespace string) bool {
		decision, _, err := x.Authorize(context.Background(), authorizer.AttributesRecord{
			User: &user.DefaultInfo{Name: name}, Verb: "get", Resource: resource, Namespace: namespace, Name: "x", ResourceRequest: true,
		})
		return decision == authorizer.DecisionAllow && err == nil
	}
	for namespace := range resources {
		for _, resource := range []string{"configmaps", "secrets", "pods", "services"} {
			if got, want := may("ann", resource, namespace), resources[namespace] == resource; got != want {
				t.Errorf("ann may get %s in %s: %v", resource, namespace, got)
			}
			for _, name := range []string{"bob", "carl"} {
				if got, want := may(name, resource, namespace), resource == "services"; got != want {
					t.Errorf("%s may get %s in %s: %v", name, resource, namespace, got)
				}
			}
		}
	}
}

func TestAuthorize(t *testing.T) {
	x := index()
	for _, test := range []struct {
		user, verb, group, resource, namespace, name string
		want                                         bool
	}{
		{"bob", "get", "", "configmaps", "shop", "a", true},
		{"bob", "watch", "", "configmaps", "shop", "", true},
		{"bob", "update", "", "configmaps", "shop", "a", false},
		{"bob", "get", "", "configmaps", "other", "a", false},
		{"bob", "list", "", "configmaps", "", "", false},
		{"bob", "get", "apps", "configmaps", "shop", "a", false},
		{"bob", "get", "", "secrets", "shop", "a", false},
		{"bob", "get", "", "pods/log", "shop", "a", true},
		{"bob", "get", "", "pods", "shop", "a", false},
		{"bob", "get", "", "pods/exec", "shop", "a", false},
		{"Bob", "get", "", "configmaps", "shop", "a", false},
		{"bob", "GET", "", "configmaps", "shop", "a", false},
		{"bob", "", "", "configmaps", "shop", "a", false},
		{"ann", "delete", "apps", "deployments/scale", "shop", "a", true},
		{"ann", "delete", "apps", "deployments", "other", "a", false},
		{"ann", "list", "", "nodes", "", "", false},
		{"@ops", "get", "", "nodes", "", "n", true},
		{"@ops", "delete", "", "nodes", "", "n", false},
		{"@ops", "update", "apps", "deployments/scale", "shop", "a", true},
		{"@ops", "update", "apps", "deployments/status", "shop", "a", false},
		{"@ops", "update", "apps", "deployments", "shop", "a", false},
		{"ops", "get", "", "nodes", "", "n", false}, // a user who has the name of a group
		{"system:serviceaccount:shop:web", "get", "", "secrets", "shop", "one", true},
		{"system:serviceaccount:shop:web", "get", "", "secrets", "shop", "two", false},
		{"system:serviceaccount:shop:web", "list", "", "secrets", "shop", "", false},
		{"system:serviceaccount:other:web", "get", "", "secrets", "shop", "one", false},
		{"", "get", "", "configmaps", "shop", "a", false},
	} {
		a := authorizer.AttributesRecord{User: person(test.user), Verb: test.verb, APIGroup: test.group, Namespace: test.namespace, Name: test.name, ResourceRequest: true}
		a.Resource, a.Subresource, _ = strings.Cut(test.resource, "/")
		got, _, err := x.Authorize(context.Background(), a)
		if err != nil || got == authorizer.DecisionDeny || (got == authorizer.DecisionAllow) != test.want {
			t.Errorf("%+v: %v %v", test, got, err)
		}
	}
}

// person returns a user, or for "@name" a member of a group.
func person(name string) user.Info {
	if group, ok := strings.CutPrefix(name, "@"); ok {
		return &user.DefaultInfo{Name: "somebody", Groups: []string{"x", group}}
	}
	return &user.DefaultInfo{Name: name}
}

func TestAuthorizePaths(t *testing.T) {
	x := index()
	for path, want := range map[string]bool{
		"/metrics": true, "/metrics/": false, "/metrics/x": false, "/logs/": true, "/logs/a/b": true, "/logs": false, "/Metrics": false, "//metrics": false, "": false,
	} {
		got, _, _ := x.Authorize(context.Background(), authorizer.AttributesRecord{User: person("@ops"), Verb: "get", Path: path})
		if (got == authorizer.DecisionAllow) != want {
			t.Errorf("%q: %v, want allowed %v", path, got, want)
		}
	}
	// A grant in a namespace gives no paths.
	if got, _, _ := x.Authorize(context.Background(), authorizer.AttributesRecord{User: person("ann"), Verb: "get", Path: "/metrics"}); got == authorizer.DecisionAllow {
		t.Error("a RoleBinding gave a path")
	}
	if got, _, _ := x.Authorize(context.Background(), authorizer.AttributesRecord{Verb: "get", Path: "/metrics"}); got == authorizer.DecisionAllow {
		t.Error("a request without a user was allowed")
	}
}

// TestCheckGrant: a client gives only rights that it holds, except by escalate and bind.
func TestCheckGrant(t *testing.T) {
	x := index()
	authz := authorizer.AuthorizerFunc(x.Authorize)
	role := func(namespace, name string, rules ...rbacv1.PolicyRule) *rbacv1.Role {
		return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Rules: rules}
	}
	aggregated := clusterRoleOf("a")
	aggregated.AggregationRule = &rbacv1.AggregationRule{}
	aggregatedRule := clusterRoleOf("b", rule("get", "core", "secrets", ""))
	aggregatedRule.AggregationRule = &rbacv1.AggregationRule{}
	urls := clusterRoleOf("u", rbacv1.PolicyRule{NonResourceURLs: []string{"/x"}, Verbs: []string{"get", "post"}})
	const missing = `roles.rbac.authorization.k8s.io "r" is forbidden: user "bob" (groups=[]) is attempting to grant RBAC permissions not currently held:
{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}`
	for _, test := range []struct {
		what, user string
		obj        any
		want       string // "" is allowed
	}{
		{"a right that is held", "bob", role("shop", "r", rule("get", "core", "configmaps", "")), ""},
		{"a held right for one name", "bob", role("shop", "r", rule("get", "core", "configmaps", "x")), ""},
		{"a held right in another namespace", "bob", role("other", "r", rule("get", "core", "configmaps", "")), "not currently held"},
		{"rights that are not held", "bob", role("shop", "r", rule("get list", "core", "secrets", "")), missing},
		{"a wildcard", "bob", role("shop", "r", rule("*", "core", "configmaps", "")), "not currently held"},
		{"with escalate", "escalator", role("shop", "r", rule("*", "*", "*", "")), ""},
		{"a ClusterRole with escalate", "escalator", clusterRoleOf("c", rule("*", "*", "*", "")), ""},
		{"an aggregation with escalate", "escalator", aggregated, ""},
		{"a ClusterRole that is held", "@ops", clusterRoleOf("c", rule("get", "core", "nodes", "")), ""},
		{"a ClusterRole", "bob", clusterRoleOf("c", rule("get", "core", "configmaps", "")), "not currently held"},
		{"an aggregation", "bob", aggregated, "must have cluster-admin privileges to use the aggregationRule"},
		{"an aggregation with a rule", "bob", aggregatedRule, "not currently held"},
		{"two verbs of a URL", "bob", urls, "{NonResourceURLs:[\"/x\"], Verbs:[\"get\"]}\n{NonResourceURLs:[\"/x\"], Verbs:[\"post\"]}"},
		{"bind a role that is covered", "bob", boundIn("shop", "Role", "reader", userNamed("x")), ""},
		{"bind a role that is not covered", "bob", boundIn("shop", "ClusterRole", "all", userNamed("bob")), "not currently held"},
		{"bind it everywhere", "ann", bound("ClusterRole", "all", userNamed("ann")), "not currently held"},
		{"bind it where it is held", "ann", boundIn("shop", "ClusterRole", "all", userNamed("x")), ""},
		{"bind a role that does not exist", "bob", boundIn("shop", "Role", "later", userNamed("bob")), `rolebindings.rbac.authorization.k8s.io "later" not found`},
		{"with bind", "binder", bound("ClusterRole", "all", userNamed("binder")), ""},
		{"with bind for another role", "binder", bound("ClusterRole", "escalator", userNamed("binder")), "not currently held"},
		{"escalate does not bind", "escalator", bound("ClusterRole", "all", userNamed("escalator")), "not currently held"},
		{"system:masters", "@system:masters", bound("ClusterRole", "all", userNamed("x")), ""},
	} {
		var err error
		switch obj := test.obj.(type) {
		case *rbacv1.Role:
			err = x.CheckGrant(t.Context(), authz, person(test.user), obj, nil)
		case *rbacv1.ClusterRole:
			err = x.CheckGrant(t.Context(), authz, person(test.user), obj, nil)
		case *rbacv1.RoleBinding:
			err = x.CheckGrant(t.Context(), authz, person(test.user), obj, nil)
		case *rbacv1.ClusterRoleBinding:
			err = x.CheckGrant(t.Context(), authz, person(test.user), obj, nil)
		}
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.what, err, test.want)
		}
	}

	// An update that changes only what the collector changes needs no rights. An update of
	// the rules does, even if the role keeps rights that the client lacks.
	old := role("shop", "r", rule("*", "*", "*", ""))
	freed, narrowed := old.DeepCopy(), old.DeepCopy()
	freed.OwnerReferences, freed.Finalizers = []metav1.OwnerReference{{UID: "1"}}, []string{"x.dev/y"}
	narrowed.Rules[0].Verbs = []string{"get"}
	if err := x.CheckGrant(t.Context(), authz, person("bob"), freed, old); err != nil {
		t.Error(err)
	}
	if err := x.CheckGrant(t.Context(), authz, person("bob"), clusterRoleOf("a"), aggregated); err == nil {
		t.Error("an aggregation was ended without its rights")
	}
	nodes := clusterRoleOf("c", rule("get", "core", "nodes", ""))
	if err := x.CheckGrant(t.Context(), authz, person("@ops"), nodes, clusterRoleOf("c")); err != nil {
		t.Errorf("a ClusterRole was not given rights that the client holds: %v", err)
	}
	if err := x.CheckGrant(t.Context(), authz, person("bob"), narrowed, old); err == nil {
		t.Error("a role with more rights than the client has was changed")
	}
}

// TestGrantWhere: the rights to escalate and to bind count where, and for what, they are given; a refusal names the object. Who has every
// right may aggregate.
func TestGrantWhere(t *testing.T) {
	o := Objects{
		ClusterRoles: map[string]*rbacv1.ClusterRole{
			"all":       clusterRoleOf("all", rule("*", "*", "*", ""), rbacv1.PolicyRule{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}}),
			"escalates": clusterRoleOf("escalates", rule("escalate", rbacv1.GroupName, "roles", "r"), rule("bind", rbacv1.GroupName, "roles", "r")),
			"one":       clusterRoleOf("one", rule("escalate", rbacv1.GroupName, "clusterroles", "c")),
		},
		Roles:               map[types.NamespacedName]*rbacv1.Role{},
		ClusterRoleBindings: map[string]*rbacv1.ClusterRoleBinding{"one": bound("ClusterRole", "one", userNamed("one")), "all": bound("ClusterRole", "all", userNamed("root"))},
		RoleBindings: map[types.NamespacedName]*rbacv1.RoleBinding{
			{Namespace: "shop", Name: "b"}: boundIn("shop", "ClusterRole", "escalates", userNamed("bob")),
		},
	}
	role := func(namespace, name string) *rbacv1.Role {
		r := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Rules: []rbacv1.PolicyRule{rule("*", "*", "*", "")}}
		o.Roles[types.NamespacedName{Namespace: namespace, Name: name}] = r
		return r
	}
	aggregated := clusterRoleOf("a")
	aggregated.AggregationRule = &rbacv1.AggregationRule{}
	for _, test := range []struct {
		user string
		obj  runtime.Object
		want string // "" is allowed
	}{
		{"bob", role("shop", "r"), ""},
		{"bob", role("shop", "s"), `roles.rbac.authorization.k8s.io "s" is forbidden`},
		{"bob", role("other", "r"), `roles.rbac.authorization.k8s.io "r" is forbidden`},
		{"bob", boundIn("shop", "Role", "r", userNamed("x")), ""},
		{"bob", boundIn("shop", "Role", "s", userNamed("x")), `rolebindings.rbac.authorization.k8s.io "b-s" is forbidden`},
		{"bob", boundIn("other", "Role", "r", userNamed("x")), `rolebindings.rbac.authorization.k8s.io "b-r" is forbidden`},
		{"one", clusterRoleOf("c", rule("*", "*", "*", "")), ""},
		{"one", clusterRoleOf("d", rule("*", "*", "*", "")), `clusterroles.rbac.authorization.k8s.io "d" is forbidden`},
		{"one", bound("ClusterRole", "all", userNamed("one")), `clusterrolebindings.rbac.authorization.k8s.io "b-all" is forbidden`},
		{"one", aggregated, `clusterroles.rbac.authorization.k8s.io "a" is forbidden: must have cluster-admin`},
		{"root", aggregated, ""},
	} {
		x := NewIndex(o)
		err := x.CheckGrant(t.Context(), authorizer.AuthorizerFunc(x.Authorize), person(test.user), test.obj, nil)
		if (err == nil) != (test.want == "") || err != nil && !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s, %T: %v, want %q", test.user, test.obj, err, test.want)
		}
	}
}

// TestReason: of several grants the first is the reason: those for all namespaces before those of one, the user's before the groups'.
func TestReason(t *testing.T) {
	x := NewIndex(Objects{
		ClusterRoles: map[string]*rbacv1.ClusterRole{"reads": clusterRoleOf("reads", rule("get", "core", "pods", ""))},
		ClusterRoleBindings: map[string]*rbacv1.ClusterRoleBinding{
			"everywhere": bound("ClusterRole", "reads", userNamed("ann"), groupNamed("a"), groupNamed("b")),
			"gone":       bound("ClusterRole", "gone", userNamed("ann"), groupNamed("z")),
		},
		RoleBindings: map[types.NamespacedName]*rbacv1.RoleBinding{{Namespace: "shop", Name: "b"}: boundIn("shop", "ClusterRole", "reads",
			userNamed("ann"), groupNamed("a"), groupNamed("c"), rbacv1.Subject{Kind: "ServiceAccount", Name: "web"})},
	})
	const everywhere, inShop = `RBAC: allowed by ClusterRoleBinding "b-reads" of ClusterRole "reads" to `, `RBAC: allowed by RoleBinding "b-reads/shop" of ClusterRole "reads" to `
	for _, test := range []struct {
		user, groups, namespace, want string
	}{
		{"ann", "a b c", "shop", everywhere + `User "ann"`},
		{"bob", "a b", "shop", everywhere + `Group "a"`},
		{"bob", "b a", "shop", everywhere + `Group "b"`},
		{"bob", "c", "shop", inShop + `Group "c"`},
		{"bob", "z a", "shop", everywhere + `Group "a"`},
		{"bob", "z c", "shop", inShop + `Group "c"`},
		{"bob", "c", "other", ""},
		{"bob", "c", "", ""},
		{"system:serviceaccount:shop:web", "", "shop", inShop + `ServiceAccount "web/shop"`},
	} {
		a := authorizer.AttributesRecord{
			User: &user.DefaultInfo{Name: test.user, Groups: strings.Fields(test.groups)}, Verb: "get", Resource: "pods", Namespace: test.namespace, ResourceRequest: true,
		}
		if _, reason, _ := x.Authorize(t.Context(), a); reason != test.want {
			t.Errorf("%s of %q in %q: %q, want %q", test.user, test.groups, test.namespace, reason, test.want)
		}
	}
}

// TestMissingRoles: a denial names the roles that the client's bindings refer to and that do
// not exist.
func TestMissingRoles(t *testing.T) {
	x := NewIndex(Objects{
		ClusterRoleBindings: map[string]*rbacv1.ClusterRoleBinding{"b": bound("ClusterRole", "everywhere", userNamed("gina"))},
		RoleBindings:        map[types.NamespacedName]*rbacv1.RoleBinding{{Namespace: "shop", Name: "b"}: boundIn("shop", "Role", "here", userNamed("gina"))},
	})
	const everywhere = `clusterrole.rbac.authorization.k8s.io "everywhere" not found`
	for _, test := range []struct{ user, namespace, want string }{
		{"gina", "", "RBAC: " + everywhere},
		{"gina", "shop", "RBAC: [" + everywhere + `, role.rbac.authorization.k8s.io "here" not found]`},
		{"bob", "shop", ""},
	} {
		decision, reason, err := x.Authorize(t.Context(), authorizer.AttributesRecord{User: person(test.user), Verb: "get", Resource: "pods", Namespace: test.namespace, ResourceRequest: true})
		if decision != authorizer.DecisionNoOpinion || reason != test.want || err != nil {
			t.Errorf("%s in %q: %v, %q, %v; want %q", test.user, test.namespace, decision, reason, err, test.want)
		}
	}
	if _, _, _, err := x.RulesFor(t.Context(), person("gina"), ""); err == nil || err.Error() != everywhere {
		t.Errorf("the rules are listed with the error %v, want %s", err, everywhere)
	}
}

// TestBindings: whom a binding means, and with which role. Another kind of role grants nothing; an administrator may all.
func TestBindings(t *testing.T) {
	reads := clusterRoleOf("reads", rule("get", "core", "pods", ""), rbacv1.PolicyRule{NonResourceURLs: []string{"/x"}, Verbs: []string{"get"}})
	account := rbacv1.Subject{Kind: "ServiceAccount", Name: "web"}
	there := rbacv1.Subject{Kind: "ServiceAccount", Name: "web", Namespace: "there"}
	x := NewIndex(Objects{
		ClusterRoles:        map[string]*rbacv1.ClusterRole{"reads": reads},
		ClusterRoleBindings: map[string]*rbacv1.ClusterRoleBinding{"b": bound("ClusterRole", "reads", account, userNamed("ann")), "again": bound("ClusterRole", "reads", userNamed("ann"))},
		RoleBindings: map[types.NamespacedName]*rbacv1.RoleBinding{
			{Namespace: "shop", Name: "b"}: boundIn("shop", "ClusterRole", "reads", there), {Namespace: "shop", Name: "odd"}: boundIn("shop", "Odd", "reads", userNamed("bob")),
		},
	})
	for _, test := range []struct {
		user  string
		rules string // of resources and of paths, in shop
		err   bool
	}{
		{"ann", "1 1", false}, // once, although two bindings give it
		{"system:serviceaccount::web", "0 0", false}, {"system:serviceaccount:shop:web", "0 0", false},
		{"system:serviceaccount:there:web", "1 1", false},
		{"bob", "0 0", true},
		{"@system:masters", "1 1", false},
	} {
		resources, paths, incomplete, err := x.RulesFor(t.Context(), person(test.user), "shop")
		if got := fmt.Sprint(len(resources), len(paths)); got != test.rules || incomplete || (err != nil) != test.err {
			t.Errorf("%s has %s rules, %v", test.user, got, err)
		}
		for _, r := range resources {
			if all := test.user == "@system:masters"; slices.Contains(r.GetVerbs(), "*") != all || slices.Contains(r.GetResources(), "*") != all {
				t.Errorf("%s: %+v", test.user, r)
			}
		}
	}
}

// TestRoleNeedsNamespace: a binding in all namespaces grants no Role, which is of one.
func TestRoleNeedsNamespace(t *testing.T) {
	x := NewIndex(Objects{
		Roles: map[types.NamespacedName]*rbacv1.Role{{Name: "r"}: {ObjectMeta: metav1.ObjectMeta{Name: "r"},
			Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}}}},
		ClusterRoleBindings: map[string]*rbacv1.ClusterRoleBinding{"b": bound("Role", "r", userNamed("gina"))},
	})
	decision, _, err := x.Authorize(t.Context(), authorizer.AttributesRecord{User: person("gina"), Verb: "get", Resource: "pods", ResourceRequest: true})
	if decision == authorizer.DecisionAllow || err != nil {
		t.Errorf("%v, %v", decision, err)
	}
}

func TestAggregate(t *testing.T) {
	selector := func(label string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: map[string]string{label: "true"}}
	}
	sum := clusterRoleOf("sum", rule("delete", "core", "pods", "")) // of a role that is gone
	sum.Labels = map[string]string{"to-sum": "true"}                // itself does not count
	sum.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{selector("to-sum"), selector("more")}}
	all := map[string]*rbacv1.ClusterRole{"sum": sum}
	for _, r := range []struct{ name, label, verb string }{{"c", "to-sum", "get"}, {"b", "to-sum", "list"}, {"d", "more", "get"}, {"e", "other", "delete"}, {"a", "more", "watch"}} {
		all[r.name] = clusterRoleOf(r.name, rule(r.verb, "core", "pods", ""))
		all[r.name].Labels = map[string]string{r.label: "true"}
	}
	for range 20 { // a map has another order each time
		rules, ok := Aggregate(sum, all)
		var verbs []string
		for _, r := range rules {
			verbs = append(verbs, r.Verbs...)
		}
		if got := strings.Join(verbs, " "); !ok || got != "list get watch" {
			t.Fatalf("aggregated %q", got)
		}
	}
	if _, ok := Aggregate(all["a"], all); ok {
		t.Error("a role without an aggregation was aggregated")
	}
	sum.AggregationRule.ClusterRoleSelectors[1].MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Odd"}}
	if rules, ok := Aggregate(sum, all); ok {
		t.Errorf("a role with a selector that is none gets the rules %v; it keeps what it has", rules)
	}
}

// BenchmarkAuthorize: a decision costs about a microsecond.
func BenchmarkAuthorize(b *testing.B) {
	x := index()
	u := &user.DefaultInfo{Name: "bob", Groups: []string{"a", "b", "system:authenticated"}}
	b.ReportAllocs()
	for b.Loop() {
		a := authorizer.AttributesRecord{User: u, Verb: "get", Resource: "configmaps", Namespace: "shop", Name: "a", ResourceRequest: true}
		if d, _, _ := x.Authorize(context.Background(), a); d != authorizer.DecisionAllow {
			b.Fatal("denied")
		}
	}
}

// TestOnlyCollects: an update that changes finalizers and owners only needs none of the rights that the role gives,
// however its kind and version came into the object.
func TestOnlyCollects(t *testing.T) {
	old := clusterRoleOf("all", rule("*", "*", "*", ""))
	old.ResourceVersion = "1"
	for name, test := range map[string]struct {
		change func(*rbacv1.ClusterRole)
		want   bool
	}{
		"nothing":    {func(*rbacv1.ClusterRole) {}, true},
		"finalizers": {func(r *rbacv1.ClusterRole) { r.Finalizers = []string{"example.com/a"} }, true},
		"owners":     {func(r *rbacv1.ClusterRole) { r.OwnerReferences = []metav1.OwnerReference{{Name: "a"}} }, true},
		"written": {func(r *rbacv1.ClusterRole) {
			r.ManagedFields, r.ResourceVersion = []metav1.ManagedFieldsEntry{{Manager: "a"}}, "2"
		}, true},
		"sent": {func(r *rbacv1.ClusterRole) {
			r.TypeMeta = metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"}
		}, true},
		"labels": {func(r *rbacv1.ClusterRole) { r.Labels = map[string]string{"a": "b"} }, false},
		"rules":  {func(r *rbacv1.ClusterRole) { r.Rules = append(r.Rules, rule("get", "core", "pods", "")) }, false},
	} {
		next := old.DeepCopy()
		test.change(next)
		if got := onlyCollects(next, old); got != test.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
	if onlyCollects(old, nil) {
		t.Error("a create only collects")
	}
}
