package archive

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/access/accesstest"
	"github.com/exeunt/exeunt/api"
	"github.com/exeunt/exeunt/api/openapi"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/lifecycle"
)

// serve starts an API on the world and returns a function that sends requests.
func (w *world) serve(grants ...string) (ask func(method, path, body string, headers ...string) (code int, answer string)) {
	w.Helper()
	w.kinds.Put(w.archive.Kinds()...)
	a := api.New(api.Config{
		Store: w.store, Kinds: w.kinds, Access: accesstest.Control(grants...), Admission: accesstest.NoAdmission{}, OpenAPI: openapi.New(w.kinds, "test"),
		Logger: slog.New(slog.DiscardHandler), Version: "test",
	})
	w.Cleanup(func() { a.Close(context.Background()) })
	w.work(a.ClientOf)
	return func(method, path, body string, headers ...string) (int, string) {
		reply := accesstest.Caller{TB: w, Handler: a}.Send(method, path, body, headers...)
		return reply.Code, reply.Body
	}
}

const group = "/apis/lifecycle.exeunt.dev/v1"

// TestServed deletes through the API, and reads, restores and purges there.
func TestServed(t *testing.T) {
	each(t, func(w *world) {
		ask := w.serve()
		want := func(code int, method, path, body string, headers ...string) gjson.Result {
			w.Helper()
			got, answer := ask(method, path, body, headers...)
			if got != code {
				w.Fatalf("%s %s: %d, want %d: %s", method, path, got, code, answer)
			}
			return gjson.Parse(answer)
		}
		uid := string(w.create("configmaps:n/a").UID)
		want(http.StatusOK, "DELETE", "/api/v1/namespaces/n/configmaps/a", "")
		w.create("configmaps:n/b")
		w.create("configmaps:n/c")
		want(http.StatusOK, "DELETE", "/api/v1/namespaces/n/configmaps", "")

		list := want(http.StatusOK, "GET", group+"/archivedobjects?limit=2", "")
		if list.Get("kind").String() != "ArchivedObjectList" || list.Get("apiVersion").String() != v1.GroupVersion.String() || list.Get("items.#").Int() != 2 || list.Get("metadata.continue").String() == "" {
			w.Errorf("list: %s", list)
		}
		if a, b := list.Get("items.0.spec.cascade").String(), list.Get("items.1.spec.cascade").String(); a != b || a == list.Get("items.0.spec.uid").String() {
			w.Errorf("a collection that one request deleted has the cascades %s and %s", a, b)
		}
		one := want(http.StatusOK, "GET", group+"/namespaces/n/archivedobjects/"+uid, "")
		if one.Get("spec.actor").String() != "tester" || one.Get("object.data.key").String() != "value" || one.Get("spec.cascade").String() != uid {
			w.Errorf("get: %s", one)
		}
		table := want(http.StatusOK, "GET", group+"/namespaces/n/archivedobjects?fieldSelector=spec.name%3Da", "", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io")
		if table.Get("rows.#").Int() != 1 || table.Get("rows.0.cells.2").String() != "a" {
			w.Errorf("table: %s", table)
		}
		want(http.StatusNotFound, "GET", group+"/namespaces/m/archivedobjects/"+uid, "")
		want(http.StatusBadRequest, "GET", group+"/archivedobjects?fieldSelector=spec.size%3D1", "")
		want(http.StatusMethodNotAllowed, "POST", group+"/namespaces/n/archivedobjects", `{}`)
		want(http.StatusMethodNotAllowed, "GET", group+"/archivedobjects?watch=1", "")

		restore := `{"apiVersion":"lifecycle.exeunt.dev/v1","kind":"Restore","spec":{"object":{"kind":"ConfigMap","namespace":"n","name":"a"}}}`
		restored := want(http.StatusCreated, "POST", group+"/restores", restore)
		if restored.Get("status.created").Int() != 1 || restored.Get("metadata.managedFields").Exists() || !w.exists("configmaps:n/a") {
			w.Errorf("restore: %s", restored)
		}
		refused := want(http.StatusBadRequest, "POST", group+"/restores", `{"apiVersion":"lifecycle.exeunt.dev/v1","kind":"Restore","spec":{}}`)
		if !strings.Contains(refused.Get("message").String(), "exactly one of uid, cascade and object") {
			w.Errorf("refused with %s", refused)
		}
		want(http.StatusOK, "DELETE", group+"/namespaces/n/archivedobjects/"+uid, "")
		want(http.StatusNotFound, "DELETE", group+"/namespaces/n/archivedobjects/"+uid, "")
	})
}

// TestRights: reading the archive needs get on the removed object, purging needs delete
// too, restoring needs create too; a restored binding grants only rights that the client holds.
func TestRights(t *testing.T) {
	each(t, func(w *world) {
		ask := w.serve("vi view n", "ed edit n", "op admin n")
		as := func(user, method, path, body string) (int, string) {
			w.Helper()
			return ask(method, path, body, "Impersonate-User: "+user)
		}
		secret, plain := w.create("secrets:n/s"), w.create("configmaps:n/c")
		w.delete(secret, metav1.DeletePropagationBackground)
		w.delete(plain, metav1.DeletePropagationBackground)
		if code, answer := ask("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/n/rolebindings",
			`{"metadata":{"name":"root"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"op"}]}`); code != http.StatusCreated {
			w.Fatal(answer)
		}
		ask("DELETE", "/apis/rbac.authorization.k8s.io/v1/namespaces/n/rolebindings/root", "")

		archived := group + "/namespaces/n/archivedobjects"
		restore := func(kind, name string) string {
			return `{"apiVersion":"lifecycle.exeunt.dev/v1","kind":"Restore","spec":{"object":{"kind":"` + kind + `","namespace":"n","name":"` + name + `"}}}`
		}
		for _, test := range []struct {
			user, method, path, body string
			code                     int
			says                     string
		}{
			{"eve", "GET", archived, "", 403, `cannot list resource \"archivedobjects\"`},
			{"vi", "GET", archived + "/" + string(plain.UID), "", 200, `"name":"c"`},
			{"vi", "GET", archived + "/" + string(secret.UID), "", 404, `archivedobjects.lifecycle.exeunt.dev \"` + string(secret.UID) + `\" not found`},
			{"vi", "POST", group + "/restores", restore("Secret", "s"), 403, `cannot get resource \"secrets\" in API group \"\" in the namespace \"n\"`},
			{"vi", "POST", group + "/restores", restore("Secret", "none"), 403, `cannot get resource \"secrets\" in API group \"\" in the namespace \"n\"`},
			{"vi", "DELETE", archived + "/" + string(plain.UID), "", 403, `cannot delete resource`},
			{"ed", "GET", archived + "/" + string(secret.UID), "", 200, `"name":"s"`},
			{"vi", "POST", group + "/restores", restore("ConfigMap", "c"), 403, `cannot create resource \"configmaps\"`},
			{"ed", "POST", group + "/restores", restore("Secret", "s"), 201, `"created":1`},
			{"ed", "POST", group + "/restores", restore("RoleBinding", "root"), 403, `cannot get resource \"rolebindings\"`},
			{"op", "POST", group + "/restores", restore("RoleBinding", "root"), 403, `is attempting to grant RBAC permissions not currently held`},
		} {
			code, answer := as(test.user, test.method, test.path, test.body)
			if code != test.code || !strings.Contains(answer, test.says) {
				w.Errorf("%s %s %s: %d %s", test.user, test.method, test.path, code, answer)
			}
		}
		if _, answer := as("vi", "GET", archived, ""); strings.Contains(answer, string(secret.UID)) || !strings.Contains(answer, string(plain.UID)) {
			w.Errorf("vi lists %s", answer)
		}
		if w.exists("rolebindings.rbac.authorization.k8s.io:n/root") {
			w.Error("a binding was restored with more rights than the client has")
		}
	})
}

// TestRightsBeforeTheFirstObject: a restore whose objects need a right that the client lacks is
// refused as a whole, in the dry run too, and the answer names each right once. An owner
// that does not come back needs none.
func TestRightsBeforeTheFirstObject(t *testing.T) {
	each(t, func(w *world) {
		ask := w.serve("ed edit n")
		owner := w.create("configmaps:n/owner")
		for i := range 3 {
			w.createWith(fmt.Sprintf("secrets:n/child-%d", i), func(m *metav1.ObjectMeta) {
				m.OwnerReferences = w.OwnedBy(owner) // blocking
			})
		}
		w.create("secrets:n/below", w.create("deployments.apps:n/middle", owner))
		w.createWith("configmaps:n/confirmed", func(m *metav1.ObjectMeta) {
			m.OwnerReferences, m.Annotations = w.OwnedBy(owner), map[string]string{lifecycle.ConfirmCascade: "9"}
			m.OwnerReferences[0].BlockOwnerDeletion = nil
		})
		w.delete(owner, metav1.DeletePropagationBackground)
		restore := func(user, kind, name string, dryRun, cascade bool) (int, string) {
			return ask("POST", group+"/restores", fmt.Sprintf(
				`{"apiVersion":"lifecycle.exeunt.dev/v1","kind":"Restore","spec":{"object":{"kind":%q,"namespace":"n","name":%q},"withCascade":%v,"dryRun":%v}}`, kind, name, cascade, dryRun),
				"Impersonate-User: "+user, "Impersonate-Group: "+map[bool]string{true: "system:masters", false: "none"}[user == "root"])
		}
		for _, dryRun := range []bool{true, false} {
			code, answer := restore("ed", "ConfigMap", "owner", dryRun, true)
			if code != http.StatusForbidden || strings.Count(answer, `cannot update resource \"configmaps/finalizers\"`) != 1 ||
				strings.Count(answer, `cannot update resource \"deployments/finalizers\"`) != 1 ||
				!strings.Contains(answer, "cannot confirm its cascade") || !strings.Contains(answer, "nothing is restored") {
				w.Errorf("dry run %v: %d %s", dryRun, code, answer)
			}
		}
		if w.exists("configmaps:n/owner") || w.exists("secrets:n/child-0") {
			w.Error("part of a refused restore exists")
		}
		if code, answer := restore("ed", "Secret", "child-1", false, false); code != http.StatusCreated || !strings.Contains(answer, `"created":1`) {
			w.Errorf("alone: %d %s", code, answer)
		}
		if code, answer := restore("root", "ConfigMap", "owner", false, true); code != http.StatusCreated || !strings.Contains(answer, `"created":6`) {
			w.Errorf("with all rights: %d %s", code, answer)
		}
	})
}

// TestRightsForWhatIsBeingDeleted: the rights that an object needs which is still being deleted are missed
// before the first object is written, too.
func TestRightsForWhatIsBeingDeleted(t *testing.T) {
	each(t, func(w *world) {
		ask := w.serve("ed edit n")
		owner := w.create("configmaps:n/owner")
		w.createWith("secrets:n/child", func(m *metav1.ObjectMeta) {
			m.OwnerReferences, m.Finalizers = w.OwnedBy(owner), []string{"x.dev/hold"} // blocking
		})
		w.delete(owner, metav1.DeletePropagationBackground)
		for _, dryRun := range []bool{true, false} {
			code, answer := ask("POST", group+"/restores", fmt.Sprintf(
				`{"apiVersion":"lifecycle.exeunt.dev/v1","kind":"Restore","spec":{"cascade":%q,"dryRun":%v}}`, owner.UID, dryRun), "Impersonate-User: ed")
			if code != http.StatusForbidden || !strings.Contains(answer, `cannot update resource \"configmaps/finalizers\"`) {
				w.Errorf("dry run %v: %d %s", dryRun, code, answer)
			}
		}
		if w.exists("configmaps:n/owner") {
			w.Error("part of a refused restore exists")
		}
		alone := w.createWith("secrets:n/alone", func(m *metav1.ObjectMeta) {
			m.OwnerReferences, m.Finalizers = w.OwnedBy(w.create("configmaps:n/stays")), []string{"x.dev/hold"} // blocking
		})
		w.delete(alone, metav1.DeletePropagationBackground)
		code, answer := ask("POST", group+"/restores", fmt.Sprintf(
			`{"apiVersion":"lifecycle.exeunt.dev/v1","kind":"Restore","spec":{"uid":%q}}`, alone.UID), "Impersonate-User: ed")
		if code != http.StatusForbidden || !strings.Contains(answer, `cannot update resource \"configmaps/finalizers\"`) {
			w.Errorf("its owner stays: %d %s", code, answer)
		}
	})
}

// TestRestoredUser: a User comes back without its tokens, unless the client asks for them;
// its uid is another one.
func TestRestoredUser(t *testing.T) {
	each(t, func(w *world) {
		users, err := access.UserKind()
		if err != nil {
			w.Fatal(err)
		}
		w.kinds.Put(users)
		ask := w.serve()
		const path = "/apis/access.exeunt.dev/v1/users"
		create := func(name string) gjson.Result {
			w.Helper()
			code, answer := ask("POST", path, `{"apiVersion":"access.exeunt.dev/v1","kind":"User","metadata":{"name":"`+name+`"},"spec":{"groups":["dev"],"tokens":[{"name":"first","sha256":"`+strings.Repeat("ab", 32)+`"}]}}`)
			if code != http.StatusCreated {
				w.Fatal(answer)
			}
			ask("DELETE", path+"/"+name, "")
			return gjson.Parse(answer)
		}
		for name, test := range map[string]struct{ options, warns, tokens string }{
			"plain": {"", "its tokens are left out", ""},
			"asked": {`,"keepTokens":true`, "its old tokens are valid again: \"first\"", "first"},
		} {
			old := create(name)
			for _, dry := range []string{`,"dryRun":true`, ""} {
				_, answer := ask("POST", group+"/restores", `{"apiVersion":"lifecycle.exeunt.dev/v1","kind":"Restore","spec":{"object":{"kind":"user","name":"`+name+`"}`+test.options+dry+`}}`)
				if got := gjson.Get(answer, "status.results.0"); got.Get("outcome").String() != "created" || !strings.Contains(got.Get("warnings.0").String(), test.warns) {
					w.Errorf("%s%s: %s", name, dry, answer)
				}
			}
			_, answer := ask("GET", path+"/"+name, "")
			now := gjson.Parse(answer)
			if now.Get("spec.tokens.0.name").String() != test.tokens || now.Get("spec.groups.0").String() != "dev" || now.Get("metadata.uid").String() == old.Get("metadata.uid").String() {
				w.Errorf("%s: %s", name, answer)
			}
		}
	})
}

// TestDescribed: discovery and OpenAPI have the kinds, with only the verbs that work.
func TestDescribed(t *testing.T) {
	each(t, func(w *world) {
		ask := w.serve()
		_, answer := ask("GET", group, "")
		resources := gjson.Get(answer, "resources")
		if got := resources.Get(`#(name=="archivedobjects").verbs`).Raw; got != `["delete","get","list"]` {
			w.Errorf("verbs of archivedobjects: %s", got)
		}
		if got := resources.Get(`#(name=="restores").verbs`).Raw; got != `["create","delete","get","list"]` {
			w.Errorf("verbs of restores: %s", got)
		}
		_, answer = ask("GET", "/openapi/v3"+group, "")
		paths := map[string]gjson.Result{}
		gjson.Get(answer, "paths").ForEach(func(path, item gjson.Result) bool {
			paths[path.String()] = item
			return true
		})
		item := paths[group+"/namespaces/{namespace}/archivedobjects/{name}"]
		if !item.Get("get").Exists() || !item.Get("delete").Exists() || item.Get("put").Exists() || item.Get("patch").Exists() {
			w.Errorf("operations of an archived object: %s", item)
		}
		schemas := gjson.Get(answer, "components.schemas")
		if !schemas.Get(`dev\.exeunt\.lifecycle\.v1\.Restore.properties.spec.properties.cascade`).Exists() {
			w.Error("a Restore is not described")
		}
	})
}
