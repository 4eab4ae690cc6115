package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/access/accesstest"
	"github.com/exeunt/exeunt/access/directory"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/store"
)

// TestContentNeedsRights: owner references, finalizers and confirmations need rights of
// their own, on every path of a write. The denial names what is missing.
func TestContentNeedsRights(t *testing.T) {
	w := newWorld(t, store.Options{})
	o := accesstest.Objects()
	o.ClusterRoles["updater"] = &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "updater"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "create", "update", "patch"}},
	}}
	for _, name := range []string{"updater", "edit", "admin"} {
		o.ClusterRoleBindings[name+"s"] = &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name + "s"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}},
		}
	}
	w.api.Access = access.NewControl(directory.Of(o), access.Config{})
	w.configMap("owner", "")
	uid := w.want(http.StatusOK, "GET", configMaps+"/owner", "").get("metadata.uid")
	owner := func(blocking bool) string {
		return fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q,"blockOwnerDeletion":%t}]}}`, uid, blocking)
	}
	const finalizer = `{"metadata":{"finalizers":["example.com/x"]}}`
	confirm := `{"metadata":{"annotations":{"` + lifecycle.ConfirmCascade + `":"3"}}}`
	deny := map[string]string{
		"delete":          `is forbidden: cannot set an ownerRef on a resource you can't delete: User "updater" cannot delete resource "configmaps" in API group "" in the namespace "shop"`,
		"block":           `is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: User`,
		"block unknown":   `is forbidden: cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion example.com/v1 Kind Widget: User`,
		"finalizers":      `cannot update resource "configmaps/finalizers" in API group "" in the namespace "shop": cannot change finalizers`,
		"confirm-cascade": `cannot confirm-cascade resource "configmaps" in API group "" in the namespace "shop"`,
	}
	for i, c := range []struct{ user, patch, denied string }{
		{"updater", `{"data":{"a":"b"}}`, ""},
		{"updater", owner(false), "delete"},
		{"edit", owner(false), ""},
		{"edit", owner(true), "block"},
		{"edit", strings.Replace(owner(true), `"apiVersion":"v1","kind":"ConfigMap"`, `"apiVersion":"example.com/v1","kind":"Widget"`, 1), "block unknown"},
		{"admin", owner(true), ""},
		{"edit", finalizer, "finalizers"},
		{"admin", finalizer, ""},
		{"edit", confirm, "confirm-cascade"},
		{"admin", confirm, ""},
	} {
		for _, kind := range []string{"merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"} {
			name := fmt.Sprintf("c-%d-%s", i, strings.SplitN(kind, "-", 2)[0])
			w.configMap(name, "")
			path, body := configMaps+"/"+name, c.patch
			if strings.HasPrefix(kind, "apply") {
				path, body = path+"?fieldManager=x&force=true", `{"apiVersion":"v1","kind":"ConfigMap",`+c.patch[1:]
			}
			r := w.as(c.user, nil, "PATCH", path, body, "Content-Type: application/"+kind)
			switch {
			case c.denied == "" && r.code != http.StatusOK:
				t.Errorf("%s as %s, %s: %d %s", kind, c.user, c.patch, r.code, r.body)
			case c.denied != "" && (r.code != http.StatusForbidden || !strings.Contains(r.get("message"), deny[c.denied])):
				t.Errorf("%s as %s, %s: %d %s, want a denial with %s", kind, c.user, c.patch, r.code, r.body, deny[c.denied])
			}
		}
	}
	// A create is the client's own object; but it must not block an owner of others.
	create := func(name string, blocking bool) reply {
		return w.as("updater", nil, "POST", configMaps, fmt.Sprintf(`{"metadata":{"name":%q,"finalizers":["example.com/x"],%s`, name, strings.TrimPrefix(owner(blocking), `{"metadata":{`)))
	}
	if r := create("own", false); r.code != http.StatusCreated {
		t.Errorf("a create with an owner: %d %s", r.code, r.body)
	}
	if r := create("blocking", true); r.code != http.StatusForbidden || !strings.Contains(r.get("message"), deny["block"]) {
		t.Errorf("a create that blocks its owner: %d %s", r.code, r.body)
	}
}
