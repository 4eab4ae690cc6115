package access_test

import (
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/exeunt/exeunt/access/accesstest"
)

// TestBrokerRights: the broker may write custom kinds and the Secrets of tokens, and
// nothing of Kubernetes or of this server with which it could get further.
func TestBrokerRights(t *testing.T) {
	control := accesstest.Control()
	for _, test := range []struct {
		user, verb, group, resource, namespace string
		want                                   bool
	}{
		{"system:exeunt:broker", "create", "infra.example.org", "xnodes", "shop", true},
		{"system:exeunt:broker", "delete", "kubernetes.crossplane.io", "providerconfigs", "", true},
		{"system:exeunt:broker", "watch", "infra.example.org", "xnodes", "shop", true},
		{"system:exeunt:broker", "get", "", "namespaces", "", true},
		{"system:exeunt:broker", "patch", "", "secrets", "shop", true},
		{"system:exeunt:broker", "list", "", "secrets", "shop", false},
		{"system:exeunt:broker", "update", "infra.example.org", "xnodes", "shop", false},
		{"system:exeunt:broker", "get", "", "secrets", "kube-system", false},
		{"system:exeunt:broker", "get", "", "secrets", "", false},
		{"system:exeunt:broker", "deletecollection", "infra.example.org", "xnodes", "shop", false},
		{"system:exeunt:broker", "create", "", "pods", "", false},
		{"system:exeunt:broker", "create", "", "pods", "shop", false},
		{"system:exeunt:broker", "patch", "infra.example.org", "xnodes/status", "shop", false},
		{"system:exeunt:broker", "create", "apps", "deployments", "", false},
		{"system:exeunt:broker", "create", "rbac.authorization.k8s.io", "clusterrolebindings", "", false},
		{"system:exeunt:broker", "create", "access.exeunt.dev", "users", "", false},
		{"system:exeunt:broker", "create", "certificates.k8s.io", "certificatesigningrequests", "", false},
		{"system:exeunt:broker", "delete", "", "namespaces", "", false},
		{"system:exeunt:broker", "impersonate", "", "users", "", false},
		{"jane", "create", "infra.example.org", "xnodes", "shop", false},
	} {
		resource, subresource, _ := strings.Cut(test.resource, "/")
		decision, _, err := control.Authorizer().Authorize(t.Context(), authorizer.AttributesRecord{
			User: &user.DefaultInfo{Name: test.user, Groups: []string{user.AllAuthenticated}}, Verb: test.verb, ResourceRequest: true,
			APIGroup: test.group, APIVersion: "v1", Resource: resource, Subresource: subresource, Namespace: test.namespace, Name: "x",
		})
		if got := decision == authorizer.DecisionAllow; got != test.want || err != nil {
			t.Errorf("%+v: %v, %v", test, got, err)
		}
	}
}

// TestMetricsByRole: /metrics needs a role with that path, and not an administrator.
func TestMetricsByRole(t *testing.T) {
	control := accesstest.Control("ann system:monitoring")
	for name, want := range map[string]bool{"ann": true, "bob": false} {
		for path, allowed := range map[string]bool{"/metrics": want, "/exeunt/gc": false} {
			decision, _, err := control.Authorizer().Authorize(t.Context(), authorizer.AttributesRecord{
				User: &user.DefaultInfo{Name: name, Groups: []string{user.AllAuthenticated}}, Verb: "get", Path: path,
			})
			if got := decision == authorizer.DecisionAllow; got != allowed || err != nil {
				t.Errorf("%s gets %s: %v, %v", name, path, got, err)
			}
		}
	}
}
