package policy_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/exeunt/exeunt/access/policy"
	"github.com/exeunt/exeunt/access/rbac"
	"github.com/exeunt/exeunt/kind/builtin"
)

var update = flag.Bool("update", false, "rewrite testdata/matrix.txt")

// own are the kinds that other packages register, as group/plural.
var own = []string{
	"apiextensions.k8s.io/customresourcedefinitions",
	"lifecycle.exeunt.dev/archivedobjects", "lifecycle.exeunt.dev/cascades", "lifecycle.exeunt.dev/clusterexpirypolicies", "lifecycle.exeunt.dev/expirypolicies", "lifecycle.exeunt.dev/expirypreviews", "lifecycle.exeunt.dev/deletionpreviews", "lifecycle.exeunt.dev/deletionreports",
	"lifecycle.exeunt.dev/finalizerremovals", "lifecycle.exeunt.dev/restores", "mesh.exeunt.dev/meshnodes",
	"provisioning.exeunt.dev/blueprints", "provisioning.exeunt.dev/provisionedresources", "registry.exeunt.dev/registrycaches", "registry.exeunt.dev/repositories", "registry.exeunt.dev/retentionpolicies",
	"access.exeunt.dev/users", "example.com/widgets",
}

var (
	verbs   = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
	special = []string{"impersonate", "bind", "escalate", "force-finalize", "confirm-cascade"}
)

// TestMatrix compares every default role × kind × verb with a readable table. Its diff
// shows each change of the policy and each new kind.
func TestMatrix(t *testing.T) {
	d := policy.Default()
	var names, kinds []string
	for name := range d.ClusterRoles {
		names = append(names, name)
	}
	for _, k := range builtin.Kinds() {
		kinds = append(kinds, k.Group+"/"+k.Plural)
	}
	kinds = append(kinds, own...)
	slices.Sort(names)
	slices.Sort(kinds)
	var b bytes.Buffer
	for _, name := range names {
		x := rbac.NewIndex(rbac.Objects{ClusterRoles: d.ClusterRoles, ClusterRoleBindings: map[string]*rbacv1.ClusterRoleBinding{
			"b": {RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: name}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "u"}}},
		}})
		fmt.Fprintf(&b, "%s\n", name)
		for _, k := range kinds {
			group, plural, _ := strings.Cut(k, "/")
			for _, subresource := range []string{"", "status", "finalizers", "scale", "token"} {
				if allowed := allowedVerbs(x, group, plural, subresource); len(allowed) > 0 {
					fmt.Fprintf(&b, "  %s: %s\n", strings.TrimSuffix(strings.TrimPrefix(k, "/")+"/"+subresource, "/"), strings.Join(allowed, " "))
				}
			}
		}
	}
	golden := filepath.Join("testdata", "matrix.txt")
	if *update {
		if err := os.WriteFile(golden, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("the default roles differ from the table; if that is intended: go test ./access/policy -update\n%s", diff)
	}
}

func allowedVerbs(x *rbac.Index, group, plural, subresource string) (allowed []string) {
	asked := verbs
	if subresource == "" {
		asked = slices.Concat(verbs, special)
	}
	for _, verb := range asked {
		decision, _, _ := x.Authorize(context.Background(), authorizer.AttributesRecord{
			User: &user.DefaultInfo{Name: "u"}, Verb: verb, APIGroup: group, Resource: plural, Subresource: subresource, Namespace: "n", Name: "o", ResourceRequest: true,
		})
		if decision == authorizer.DecisionAllow {
			allowed = append(allowed, verb)
		}
	}
	if len(allowed) == len(asked) {
		return []string{"*"}
	}
	return allowed
}

// TestNoDefaultEscalates: only administrators and two controllers may change objects that
// grant rights. A default role for people must not lead to more rights than its own.
func TestNoDefaultEscalates(t *testing.T) {
	for name, r := range policy.Default().ClusterRoles {
		for _, rule := range r.Rules {
			wild := slices.Contains(rule.Verbs, "*") && slices.Contains(rule.Resources, "*")
			escalates := slices.Contains(rule.Verbs, "escalate") || slices.Contains(rule.Verbs, "bind")
			if wild && name != "cluster-admin" {
				t.Errorf("%s has every right: %v", name, rule)
			}
			if escalates && name != "system:controller:clusterrole-aggregation-controller" {
				t.Errorf("%s escalates: %v", name, rule)
			}
		}
	}
}

// TestBindingsReferToRoles: the role of every default binding exists.
func TestBindingsReferToRoles(t *testing.T) {
	d := policy.Default()
	for _, b := range d.ClusterRoleBindings {
		if d.ClusterRoles[b.RoleRef.Name] == nil {
			t.Errorf("ClusterRoleBinding %s refers to nothing", b.Name)
		}
	}
}
