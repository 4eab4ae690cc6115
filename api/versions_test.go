package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/access/accesstest"
	"github.com/exeunt/exeunt/access/directory"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
)

// TestVersions: all versions of a name are listed once, the newest first, with what each changed and who did it, in pages
// of any size, while they are in the log and after compaction has moved some or all of them.
func TestVersions(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := newWorld(t, store.Options{DB: db, KeepRevisions: 1, CompactEvery: 10 * time.Millisecond, History: store.HistoryOptions{For: time.Hour}})
		var want []string
		wrote := func(event, change string, r reply, request string) {
			want = append([]string{fmt.Sprintf("%s %s %s", event, change, request)}, want...)
			if r.code >= 300 {
				t.Fatal(r.body)
			}
		}
		for life := range 2 {
			id := fmt.Sprint("create-", life)
			wrote("created", "", w.send("POST", configMaps, `{"metadata":{"name":"a"},"data":{"k":"0"}}`, "Audit-Id: "+id), id)
			for i := range 20 {
				id := fmt.Sprint("update-", life, "-", i)
				r := w.send("PUT", configMaps+"/a", fmt.Sprintf(`{"metadata":{"name":"a"},"data":{"k":"%d"}}`, i+1), "Audit-Id: "+id)
				wrote("changed", fmt.Sprintf("data.k \"%d\" \"%d\"", i, i+1), r, id)
			}
			id = fmt.Sprint("delete-", life)
			wrote("removed", "", w.send("DELETE", configMaps+"/a", "", "Audit-Id: "+id), id)
		}
		for _, limit := range []string{"1", "7", "500", ""} {
			var got []string
			for next := ""; ; {
				page := w.want(http.StatusOK, "GET", "/at/versions"+configMaps+"/a?limit="+limit+"&continue="+next, "")
				for _, item := range gjson.Get(page.body, "items").Array() {
					change := ""
					if c := item.Get("changes.0"); c.Exists() {
						change = c.Get("field").Str + " " + c.Get("was").Str + " " + c.Get("is").Str
					}
					got = append(got, fmt.Sprintf("%s %s %s", item.Get("event").Str, change, item.Get("requestID").Str))
					if item.Get("user").Str == "" || item.Get("client").Str != "tester/1.0" || item.Get("time").Str == "" || item.Get("version").Str == "" ||
						item.Get("object").Exists() == (item.Get("event").Str == "removed") || item.Get("changes.#").Int() > 1 {
						t.Fatalf("version %s", item.Raw)
					}
				}
				if next = page.get("metadata.continue"); next == "" {
					break
				}
			}
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Fatalf("limit %s: got\n%s\nwant\n%s", limit, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
		for path, code := range map[string]int{
			configMaps: 400, configMaps + "/none": 200, configMaps + "/a?limit=0": 400, configMaps + "/a?continue=x": 400,
		} {
			if r := w.send("GET", "/at/versions"+path, ""); r.code != code {
				t.Errorf("GET %s: %d %s, want %d", path, r.code, r.body, code)
			}
		}
	})
}

// TestVersionsNeedRights: who may not read an object, or not its past, learns nothing, and of a namespace that was created
// again only its own past. The right in all namespaces shows the past of the earlier one too.
func TestVersionsNeedRights(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := newWorld(t, store.Options{DB: db, History: store.HistoryOptions{For: time.Hour}})
		secret := "/api/v1/namespaces/shop/secrets"
		first := w.want(http.StatusCreated, "POST", configMaps, `{"metadata":{"name":"a"},"data":{"k":"earlier"}}`).get("metadata.resourceVersion")
		w.want(http.StatusCreated, "POST", secret, `{"metadata":{"name":"a"}}`)
		w.want(http.StatusOK, "DELETE", configMaps+"/a", "")
		w.want(http.StatusOK, "DELETE", secret+"/a", "")
		w.want(http.StatusOK, "DELETE", "/api/v1/namespaces/shop", "")
		dbtest.Await(t, "the namespace is gone", func() bool {
			w.send("PUT", "/api/v1/namespaces/shop/finalize", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"},"spec":{"finalizers":[]}}`)
			return w.send("GET", "/api/v1/namespaces/shop", "").code == http.StatusNotFound
		})
		w.want(http.StatusCreated, "POST", "/api/v1/namespaces", `{"metadata":{"name":"shop"}}`)
		w.want(http.StatusCreated, "POST", secret, `{"metadata":{"name":"a"}}`)
		second := w.want(http.StatusCreated, "POST", configMaps, `{"metadata":{"name":"a"},"data":{"k":"present"}}`).get("metadata.resourceVersion")

		o := accesstest.Objects()
		for name, verbs := range map[string]string{"reader": "get list", "historian": "get list history", "everywhere": "get list history", "blind": "history"} {
			o.ClusterRoles[name] = &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"configmaps", "namespaces"}, Verbs: strings.Fields(verbs)},
			}}
			ref, subjects := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}, []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}}
			if name == "everywhere" {
				o.ClusterRoleBindings[name] = &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: ref, Subjects: subjects}
				continue
			}
			o.RoleBindings[types.NamespacedName{Namespace: "shop", Name: name}] = &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, RoleRef: ref, Subjects: subjects,
			}
		}
		w.api.Access = access.NewControl(directory.Of(o), access.Config{})
		for _, c := range []struct {
			user, path string
			code       int
			versions   int64
		}{
			{"reader", "/at/versions" + configMaps + "/a", 403, 0},
			{"blind", "/at/versions" + configMaps + "/a", 403, 0},
			{"reader", "/at/versions" + configMaps + "/none", 403, 0},
			{"historian", "/at/versions" + secret + "/a", 403, 0},
			{"historian", "/at/versions" + configMaps + "/a", 200, 1},
			{"everywhere", "/at/versions" + configMaps + "/a", 200, 3},
			{"historian", "/at/versions/api/v1/namespaces/shop", 200, 1},
			{"reader", "/at/versions/api/v1/namespaces/shop", 403, 0},
			{"historian", "/at/" + first + "/api/v1/namespaces/shop", 403, 0},
			{"everywhere", "/at/" + first + "/api/v1/namespaces/shop", 200, 0},
			{"historian", "/at/" + second + configMaps + "/a", 200, 0},
			{"historian", "/at/" + second + configMaps, 200, 0},
			{"historian", "/at/" + first + configMaps + "/a", 403, 0},
			{"historian", "/at/" + first + configMaps, 403, 0},
			{"everywhere", "/at/" + first + configMaps + "/a", 200, 0},
			{"everywhere", "/at/" + first + configMaps, 200, 0},
		} {
			for _, limit := range []string{"?limit=1", "?limit=50"} {
				got := w.as(c.user, nil, "GET", c.path+limit, "")
				if got.code != c.code || c.user == "historian" && strings.Contains(got.body, "earlier") || c.code == 403 && strings.Contains(got.body, `"k"`) {
					t.Errorf("%s: GET %s: %d %s, want %d", c.user, c.path, got.code, got.body, c.code)
				}
				if n := gjson.Get(got.body, "items.#").Int(); strings.Contains(c.path, "versions") && n != c.versions && limit == "?limit=50" {
					t.Errorf("%s: GET %s: %d versions, want %d", c.user, c.path, n, c.versions)
				}
				if c.user == "historian" && strings.Contains(c.path, "versions") && got.get("metadata.continue") != "" {
					t.Errorf("%s: GET %s continues: %s", c.user, c.path, got.body)
				}
			}
		}
	})
}
