package repository

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	deletionv1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store/storetest"
)

// annotate sets an annotation of a Repository.
func (w *world) annotate(namespace, name, key, value string) {
	w.Helper()
	if err := w.update(namespace, name, func(u *unstructured.Unstructured) {
		all := u.GetAnnotations()
		if all == nil {
			all = map[string]string{}
		}
		all[key] = value
		u.SetAnnotations(all)
	}); err != nil {
		w.Fatal(err)
	}
}

// immutable expects an answer that says that a tag is immutable, and how to let it go.
func (w *world) immutable(a *httptest.ResponseRecorder, want string) {
	w.Helper()
	if a.Code != 409 || !strings.Contains(a.Body.String(), `"DENIED"`) || !strings.Contains(a.Body.String(), want) {
		w.Errorf("%d %s; want 409 and %q", a.Code, a.Body, want)
	}
}

// TestImmutableTags: a tag that matches is pushed once. It is neither moved nor deleted, alone or with its manifest, until
// the Repository says that it may leave this manifest.
func TestImmutableTags(t *testing.T) {
	each(t, func(w *world) {
		first := w.push("shop/web", "v1", "one")
		w.annotate("shop", "web", lifecycle.ImmutableTags, "v*, release-*")
		w.push("shop/web", "v1", "one") // the same again
		w.push("shop/web", "latest", "one")
		w.push("shop/web", "latest", "two")
		remedy := "kubectl annotate repository web -n shop --overwrite lifecycle.exeunt.dev/confirm-tag=v1@" + first
		w.immutable(w.tryPush("shop/web", "v1", "two"), remedy)
		w.immutable(w.do("DELETE", "/v2/shop/web/manifests/v1", "", ""), remedy)
		w.immutable(w.do("DELETE", "/v2/shop/web/manifests/"+first, "", ""), remedy)
		manifest, second, _ := image("two")
		w.immutable(w.do("PUT", "/v2/shop/web/manifests/"+second+"?tag=other&tag=v1", manifestType, manifest), remedy)
		w.want(404, "", "GET", "/v2/shop/web/manifests/other") // nothing of the refused push was stored
		w.pulls("shop/web", "v1", "one")

		w.annotate("shop", "web", lifecycle.ConfirmTag, "v1@"+second)
		w.immutable(w.tryPush("shop/web", "v1", "two"), remedy) // another manifest was confirmed
		w.annotate("shop", "web", lifecycle.ConfirmTag, "v0@"+first+", v1@"+first)
		w.push("shop/web", "v1", "two")
		w.immutable(w.tryPush("shop/web", "v1", "one"), "v1@"+second) // the confirmation was for the first
		w.immutable(w.do("DELETE", "/v2/shop/web/manifests/v1", "", ""), "v1@"+second)
		w.want(202, "", "DELETE", "/v2/shop/web/manifests/latest")

		if _, err := w.registry.Undelete(w.Context(), "shop/web", "v1", first, true); err == nil || !strings.Contains(err.Error(), "is immutable") {
			w.Errorf("undelete moved it: %v", err)
		}
	})
}

// TestImmutableTagsOfANamespace: the patterns of a Namespace hold in all its repositories.
func TestImmutableTagsOfANamespace(t *testing.T) {
	each(t, func(w *world) {
		space := storetest.Namespace(w, "shop")
		space.Body = []byte(strings.Replace(string(space.Body), `"metadata":{`, `"metadata":{"annotations":{"`+lifecycle.ImmutableTags+`":"v?"},`, 1))
		if _, err := w.store.Create(w.Context(), space); err != nil {
			w.Fatal(err)
		}
		w.push("shop/web", "v1", "one")
		w.push("shop/web", "v10", "one")
		w.push("shop/web", "v10", "two")
		w.immutable(w.tryPush("shop/web", "v1", "two"), "is immutable (v?)")
		w.push("fair/web", "v1", "one")
		w.push("fair/web", "v1", "two")
	})
}

// TestImmutableTagsGoWithTheirRepository: immutability is of a name in a repository. Deleting the Repository takes all of it, and
// restoring it brings the tags back as they were, still immutable.
func TestImmutableTagsGoWithTheirRepository(t *testing.T) {
	each(t, func(w *world) {
		w.push("shop/web", "v1", "one")
		w.annotate("shop", "web", lifecycle.ImmutableTags, "*")
		w.delete("shop", "web")
		w.want(404, "NAME_UNKNOWN", "GET", "/v2/shop/web/manifests/v1")
		if r := w.restore("shop", "web"); r.Outcome != deletionv1.Created {
			w.Fatalf("restore: %+v", r)
		}
		w.pulls("shop/web", "v1", "one")
		w.immutable(w.tryPush("shop/web", "v1", "two"), "is immutable (*)")
	})
}

// TestRaceImmutableTag: pushes of different images to one new immutable tag wait for each other. One gets it.
func TestRaceImmutableTag(t *testing.T) {
	each(t, func(w *world) {
		w.push("shop/web", "latest", "zero")
		w.annotate("shop", "web", lifecycle.ImmutableTags, "v*")
		const pushes = 3
		for n := range pushes { // the blobs, and the manifests by digest
			_, d, _ := image(fmt.Sprint(n))
			w.push("shop/web", d, fmt.Sprint(n))
		}
		commit := func() {}
		if w.DB.Engine() == sqldb.Postgres {
			tx, err := w.DB.Begin(w.Context())
			if err != nil {
				w.Fatal(err)
			}
			defer tx.Rollback()
			if err := tx.Exec(w.Context(), `SELECT gc_order_tags((SELECT id FROM repositories WHERE path = 'shop/web'), ARRAY['v1'], $1)`, digest.FromString("x").String()); err != nil {
				w.Fatal(err)
			}
			commit = tx.Rollback
		}
		answers := make(chan *httptest.ResponseRecorder, pushes)
		for n := range pushes {
			manifest, _, _ := image(fmt.Sprint(n))
			go func() { answers <- w.do("PUT", "/v2/shop/web/manifests/v1", manifestType, manifest) }()
		}
		if w.DB.Engine() == sqldb.Postgres {
			w.waiting(pushes)
		}
		commit()
		codes := map[int]int{}
		for range pushes {
			codes[(<-answers).Code]++
		}
		if codes[201] != 1 || codes[409] != pushes-1 {
			w.Errorf("answers: %v", codes)
		}
	})
}

// waiting returns when n transactions wait for a lock on PostgreSQL.
func (w *world) waiting(n int) {
	w.Helper()
	for deadline := time.Now().Add(dbtest.Patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if w.Count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) >= n {
			return
		}
	}
	w.Fatalf("fewer than %d transactions wait for a lock", n)
}
