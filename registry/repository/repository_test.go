package repository

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	deletionv1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	v1 "github.com/exeunt/exeunt/registry/v1"
	"github.com/exeunt/exeunt/store"
)

// TestFirstPush: the first push creates the object and its namespace, and later
// pushes do not change them.
func TestFirstPush(t *testing.T) {
	each(t, func(w *world) {
		for _, path := range []string{"web", "shop/web", "shop/team/web", "my_shop/web", "default/web"} {
			w.push(path, "1", path)
			namespace, name := v1.Name(path)
			u := w.object(namespace, name)
			if u == nil || pathOf(u) != path {
				w.Fatalf("%s: Repository %s in %s is %v", path, name, namespace, u)
			}
			w.push(path, "2", path+" again")
			if again := w.object(namespace, name); again.GetUID() != u.GetUID() || again.GetResourceVersion() != u.GetResourceVersion() {
				w.Errorf("%s: the second push wrote the object", path)
			}
			w.pulls(path, "1", path)
		}
		if n := w.Count(`SELECT count(*) FROM repositories r JOIN objects o ON o.uid = r.object_uid`); n != 5 {
			w.Errorf("%d rows have an object", n)
		}
	})
}

// TestDeclaredOnly: a push to an undeclared repository is refused, and stores
// nothing.
func TestDeclaredOnly(t *testing.T) {
	eachWith(t, settings{options: Options{DeclaredOnly: true}}, func(w *world) {
		if a := w.tryPush("shop/web", "1", "x"); a.Code != 403 || !strings.Contains(a.Body.String(), `"DENIED"`) || !strings.Contains(a.Body.String(), "declared") {
			w.Errorf("push: %d %s", a.Code, a.Body)
		}
		if n := w.Count(`SELECT count(*) FROM repositories`); n != 0 {
			w.Errorf("%d repositories", n)
		}
		if err := w.declare("shop", "web", `{}`); err != nil {
			w.Fatal(err)
		}
		w.push("shop/web", "1", "x")
	})
}

// TestNoNamespace: a push to a missing namespace is refused if the operator
// chose that.
func TestNoNamespace(t *testing.T) {
	eachWith(t, settings{keepSpace: true}, func(w *world) {
		if a := w.tryPush("shop/web", "1", "x"); a.Code != 403 || !strings.Contains(a.Body.String(), "there is no namespace shop") {
			w.Errorf("push: %d %s", a.Code, a.Body)
		}
		if err := w.createNamespace(w.Context(), "shop"); err != nil {
			w.Fatal(err)
		}
		w.push("shop/web", "1", "x")
	})
}

// TestRules: name and path must match.
func TestRules(t *testing.T) {
	each(t, func(w *world) {
		_, derived := v1.Name("shop/team/web")
		for _, tt := range []struct{ namespace, name, spec, want string }{
			{"shop", "web", `{}`, ""},
			{"shop", "api", `{"path":"shop/api"}`, ""},
			{"default", "web", `{"hold":true}`, ""},
			{"shop", derived, `{"path":"shop/team/web"}`, ""},
			{"shop", derived, `{}`, "it does not follow from the name: set it"},
			{"shop", "x", `{"path":"shop/y"}`, "belongs to the Repository y in namespace shop"},
			{"shop", "x", `{"path":"shop/team/web"}`, "belongs to the Repository " + derived},
			{"default", "x", `{"path":"default/x"}`, "belongs to the Repository x-"},
			{"shop", "x", `{"path":"Shop/../x"}`, "is not the path of a repository"},
			{"shop", "x", `{"reviewAfterSeconds":-1}`, "should be greater than or equal to 0"},
			{"shop", "x", `{"hold":"yes"}`, "must be of type boolean"},
			{"shop", strings.Repeat("x", 253), `{}`, "255"},
		} {
			err := w.declare(tt.namespace, tt.name, tt.spec)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				w.Errorf("%s/%s %s: %v; want %q", tt.namespace, tt.name, tt.spec, err, tt.want)
			}
		}
		err := w.declare("shop", "x", `{}`, func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{"a": "b\x00"}) })
		if err == nil || !strings.Contains(err.Error(), "NUL") {
			w.Errorf("annotation with NUL: %v", err)
		}
		err = w.update("shop", "web", func(u *unstructured.Unstructured) { u.Object["spec"] = map[string]any{"path": "shop/other"} })
		if !object.Is(err, object.Invalid) {
			w.Errorf("another path: %v", err)
		}
	})
}

// TestSpec: the row has hold and delay as soon as the object is written.
func TestSpec(t *testing.T) {
	each(t, func(w *world) {
		row := func(want string) {
			w.Helper()
			var hold bool
			var delay int64
			if _, err := w.DB.Row(w.Context(), `SELECT gc_hold, coalesce(gc_delay, -1) FROM repositories WHERE path = 'shop/web'`, nil, &hold, &delay); err != nil {
				w.Fatal(err)
			}
			if got := fmt.Sprint(hold, " ", delay); got != want {
				w.Errorf("hold and delay are %s, want %s", got, want)
			}
		}
		if err := w.declare("shop", "web", `{"hold":true,"reviewAfterSeconds":60}`); err != nil {
			w.Fatal(err)
		}
		row("true 60000")
		spec := func(s map[string]any) {
			w.Helper()
			s["path"] = "shop/web"
			if err := w.update("shop", "web", func(u *unstructured.Unstructured) { u.Object["spec"] = s }); err != nil {
				w.Fatal(err)
			}
		}
		spec(map[string]any{"reviewAfterSeconds": int64(0)})
		row("false 0")
		spec(map[string]any{"hold": true})
		row("true -1")
	})
}

// TestRemoved: the content of a removed Repository cannot be reached, also not
// through a new one of the same name.
func TestRemoved(t *testing.T) {
	each(t, func(w *world) {
		d := w.push("shop/web", "1", "old")
		_, _, layer := image("old")
		w.delete("shop", "web")
		w.want(404, "NAME_UNKNOWN", "GET", "/v2/shop/web/manifests/1")
		w.want(404, "NAME_UNKNOWN", "GET", "/v2/shop/web/manifests/"+d)
		w.want(404, "NAME_UNKNOWN", "GET", "/v2/shop/web/blobs/"+layer)
		w.want(404, "NAME_UNKNOWN", "GET", "/v2/shop/web/tags/list")
		w.want(200, `{"repositories":[]}`, "GET", "/v2/_catalog")
		w.want(400, "NAME_INVALID", "GET", "/v2/@x/tags/list")

		w.push("shop/web", "2", "new")
		w.want(200, `"tags":["2"]`, "GET", "/v2/shop/web/tags/list")
		if r := w.restore("shop", "web"); r.Outcome != deletionv1.Skipped {
			w.Errorf("restore over another: %+v", r)
		}
		w.pulls("shop/web", "2", "new")
	})
}

// TestRestored: a restored Repository has its content and settings back, each
// time.
func TestRestored(t *testing.T) {
	each(t, func(w *world) {
		if err := w.declare("shop", "web", `{"hold":true}`); err != nil {
			w.Fatal(err)
		}
		w.push("shop/web", "1", "one")
		for round := range 3 {
			w.delete("shop", "web")
			if n := w.Count(`SELECT count(*) FROM repositories WHERE gc_hold`); n != 0 {
				w.Errorf("what is deleted is on hold")
			}
			w.clock.Advance(25 * time.Hour) // reviews run, and keep what can be restored
			w.collect()
			if r := w.restore("shop", "web"); r.Outcome != deletionv1.Created {
				w.Fatalf("restore: %+v", r)
			}
			w.pulls("shop/web", "1", "one")
			if n := w.Count(`SELECT count(*) FROM repositories WHERE path = 'shop/web' AND gc_hold AND NOT deleting AND removed_at IS NULL`); n != 1 {
				w.Errorf("the row is not what it was")
			}
			w.push("shop/web", fmt.Sprint("more", round), fmt.Sprint(round))
		}
		w.collect()
		w.pulls("shop/web", "more0", "0")
		if n := w.Count(`SELECT count(*) FROM repositories`); n != 1 {
			w.Errorf("%d rows", n)
		}
	})
}

// TestRestoredPastAnother: a restored Repository has its content back, even if
// another one had the name meanwhile.
func TestRestoredPastAnother(t *testing.T) {
	each(t, func(w *world) {
		w.push("shop/web", "1", "one")
		first := w.object("shop", "web").GetUID()
		w.delete("shop", "web")
		if err := w.declare("shop", "web", `{}`); err != nil {
			w.Fatal(err)
		}
		w.delete("shop", "web")
		w.clock.Advance(25 * time.Hour)
		w.collect()
		status, err := w.archive.Restore(w.Context(), kindtest.Almighty(), deletionv1.RestoreSpec{UID: first})
		if err != nil || status.Created != 1 {
			w.Fatalf("restore: %+v, %v", status, err)
		}
		w.pulls("shop/web", "1", "one")
	})
}

// TestContentGoes: when it cannot be restored any more, all content is removed,
// in steps, including lists.
func TestContentGoes(t *testing.T) {
	each(t, func(w *world) {
		w.push("other", "1", "kept")
		d := w.push("shop/web", "1", "one")
		w.push("shop/web", "2", "kept") // another repository uses its layer
		list := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"manifests":[{"mediaType":%q,"digest":%q,"size":%d}]}`, indexType, manifestType, d, 1)
		if a := w.do("PUT", "/v2/shop/web/manifests/list", indexType, list); a.Code != 201 {
			w.Fatalf("push list: %d %s", a.Code, a.Body)
		}
		if a := w.do("POST", "/v2/shop/web/blobs/uploads/", "", ""); a.Code != 202 {
			w.Fatalf("begin upload: %d %s", a.Code, a.Body)
		}
		w.delete("shop", "web")
		w.clock.Advance(25 * time.Hour)
		w.collect()
		if n := w.Count(`SELECT count(*) FROM repositories`); n != 2 {
			w.Fatalf("%d rows while it can be restored", n)
		}
		w.purge()
		w.collect()
		w.clock.Advance(25 * time.Hour) // the delay of its blobs after their manifests
		w.collect()
		for table, want := range map[string]int{
			"repositories": 1, "manifests": 1, "tags": 1, "blobs": 2, "blob_uploads": 0, "repository_blobs": 2,
			"gc_repository_review_queue": 0, "gc_unlink_queue": 0,
		} {
			if n := w.Count(`SELECT count(*) FROM ` + table); n != want {
				w.Errorf("%d rows in %s, want %d", n, table, want)
			}
		}
		w.pulls("other", "1", "kept")
	})
}

// TestNoArchive: without an archive the content is removed at once; the
// namespace's row is removed after the namespace.
func TestNoArchive(t *testing.T) {
	eachWith(t, settings{noArchive: true}, func(w *world) {
		for i := range 3 {
			w.push("shop/web", fmt.Sprint(i), fmt.Sprint(i))
		}
		w.delete("shop", "web")
		w.removeNamespace("shop")
		w.collect()
		for _, table := range []string{"repositories", "manifests", "tags", "top_level_namespaces", "gc_repository_review_queue"} {
			if n := w.Count(`SELECT count(*) FROM ` + table); n != 0 {
				w.Errorf("%d rows in %s", n, table)
			}
		}
		w.push("shop/web", "1", "again")
		w.pulls("shop/web", "1", "again")
	})
}

// TestDeleting: a repository that is being deleted refuses pushes, but can be
// pulled from until it is gone.
func TestDeleting(t *testing.T) {
	each(t, func(w *world) {
		finalizer := func(u *unstructured.Unstructured) { u.SetFinalizers([]string{"example.com/wait"}) }
		if err := w.declare("shop", "web", `{}`, finalizer); err != nil {
			w.Fatal(err)
		}
		w.push("shop/web", "1", "one")
		w.push("shop/api", "1", "one")
		w.delete("shop", "web")
		refused := func(path, why string) {
			w.Helper()
			manifest, _, layer := image("two")
			if w.Count(`SELECT count(*) FROM repositories WHERE path = $1`, path) == 0 {
				// Without a repository it is refused because its content is
				// missing.
				manifest = fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"manifests":[]}`, indexType)
			}
			for _, a := range []struct{ method, path, contentType, body string }{
				{"POST", "/v2/" + path + "/blobs/uploads/", "", ""},
				{"POST", "/v2/" + path + "/blobs/uploads/?digest=" + layer, "", "two"},
				{"POST", "/v2/" + path + "/blobs/uploads/?mount=" + layer, "", ""},
				{"PUT", "/v2/" + path + "/manifests/2", "", manifest},
			} {
				if got := w.do(a.method, a.path, a.contentType, a.body); got.Code != 403 || !strings.Contains(got.Body.String(), `"DENIED"`) || !strings.Contains(got.Body.String(), why) {
					w.Errorf("%s %s: %d %s", a.method, a.path, got.Code, got.Body)
				}
			}
		}
		refused("shop/web", "repository shop/web is being deleted")
		w.pulls("shop/web", "1", "one")
		w.push("shop/api", "2", "two")

		_, err := w.store.Delete(w.Context(), store.DeleteRequest{
			Key:   object.Key{Kind: "namespaces", Name: "shop"},
			Rules: lifecycle.Rules{Removable: func([]byte) bool { return false }, DeleteFinalizers: []string{"kubernetes"}},
		})
		if err != nil {
			w.Fatal(err)
		}
		refused("shop/api", "namespace shop is being deleted")
		refused("shop/new", "namespace shop is being deleted")
		w.pulls("shop/api", "1", "one")

		if err := w.update("shop", "web", func(u *unstructured.Unstructured) { u.SetFinalizers(nil) }); err != nil {
			w.Fatal(err)
		}
		w.want(404, "NAME_UNKNOWN", "GET", "/v2/shop/web/manifests/1")
		refused("shop/web", "namespace shop is being deleted")
	})
}

// TestAdopted: rows that are older than the kind get an object, and keep their
// content.
func TestAdopted(t *testing.T) {
	each(t, func(w *world) {
		w.push("shop/web", "1", "one")
		w.Exec(`UPDATE repositories SET object_uid = NULL`)
		w.Exec(`DELETE FROM objects WHERE kind <> 'namespaces'`)
		w.pulls("shop/web", "1", "one")
		w.push("shop/web", "2", "two")
		if err := w.repos.touchAll(w.Context()); err != nil {
			w.Fatal(err)
		}
		if w.object("shop", "web") == nil {
			w.Fatal("there is no object")
		}
		w.pulls("shop/web", "1", "one")
		w.delete("shop", "web")
		w.want(404, "", "GET", "/v2/shop/web/manifests/1")
	})
}
