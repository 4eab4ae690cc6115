package repository

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	deletionv1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/imageuse"
)

// deploy creates or replaces a Deployment with an image.
func (w *world) deploy(namespace, name, image string) {
	w.Helper()
	if err := w.createNamespace(w.Context(), namespace); err != nil {
		w.Fatal(err)
	}
	path := "/apis/apps/v1/namespaces/" + namespace + "/deployments"
	body := fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%q},"spec":{"selector":{"matchLabels":{"a":"b"}},
		"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":%q}]}}}}`, name, image)
	a := w.ask("PUT", path+"/"+name, body)
	if a.Code == 404 {
		a = w.ask("POST", path, body)
	}
	if a.Code/100 != 2 {
		w.Fatalf("deploy %s: %d %s", image, a.Code, a.Body)
	}
}

func (w *world) undeploy(namespace, name string) {
	w.Helper()
	if a := w.ask("DELETE", "/apis/apps/v1/namespaces/"+namespace+"/deployments/"+name+"?propagationPolicy=Background", ""); a.Code != 200 {
		w.Fatalf("delete deployment: %d %s", a.Code, a.Body)
	}
}

// stays collects, and reports whether a manifest is still there. The dry run must have said so.
func (w *world) stays(repo, digest string) bool {
	w.Helper()
	for range 3 {
		w.clock.Advance(25 * time.Hour)
		plan, err := w.garbage.DryRun(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		w.collect()
		for _, m := range plan.Manifests {
			if w.Count(`SELECT count(*) FROM manifests m JOIN repositories r ON r.id = m.repository_id WHERE r.path = $1 AND m.digest = $2`, m.Repository, m.Digest) > 0 {
				w.Errorf("%s was to go, and is there", m.Digest)
			}
		}
	}
	return w.Count(`SELECT count(*) FROM manifests m JOIN repositories r ON r.id = m.repository_id WHERE r.path = $1 AND m.digest = $2`, repo, digest) == 1
}

// forget forgets uses that nothing keeps.
func (w *world) forget() {
	w.Helper()
	if err := imageuse.Forget(w.Context(), w.DB, time.Now().Add(time.Hour)); err != nil {
		w.Fatal(err)
	}
}

// TestUsedIsNotCollected: a manifest that a workload names by its digest is not collected, from any namespace; nor while the
// archive could bring the workload back. It is when that ends.
func TestUsedIsNotCollected(t *testing.T) {
	each(t, func(w *world) {
		used := w.push("shop/web", "v1", "used")
		unused := w.push("shop/web", "v2", "unused")
		w.deploy("fair", "web", "registry.example:5000/shop/web:v1@"+used)
		w.want(202, "", "DELETE", "/v2/shop/web/manifests/v1")
		w.want(202, "", "DELETE", "/v2/shop/web/manifests/v2")
		if !w.stays("shop/web", used) || w.stays("shop/web", unused) {
			t.Fatal("what is used went, or what is not stayed")
		}
		holds, err := w.garbage.Holds(w.Context(), "shop/web@"+used)
		if lines := strings.Join(holds.Lines(), "\n"); err != nil || !strings.Contains(lines, "deployments.apps fair/web names "+used) {
			t.Errorf("%s, %v", lines, err)
		}
		w.undeploy("fair", "web")
		w.forget()
		if !w.stays("shop/web", used) {
			t.Fatal("it went while the archive has the workload")
		}
		holds, err = w.garbage.Holds(w.Context(), "shop/web@"+used)
		if lines := strings.Join(holds.Lines(), "\n"); err != nil || !strings.Contains(lines, "could be brought back") {
			t.Errorf("%s, %v", lines, err)
		}
		if _, err := w.archive.Restore(w.Context(), kindtest.Almighty(), deletionv1.RestoreSpec{Object: &deletionv1.ObjectName{Kind: "Deployment", Namespace: "fair", Name: "web"}}); err != nil {
			t.Fatal(err)
		}
		w.purge()
		w.forget()
		if !w.stays("shop/web", used) {
			t.Fatal("it went although the workload was restored")
		}
		w.deploy("fair", "web", "registry.example:5000/shop/web:v3")
		w.forget()
		if w.stays("shop/web", used) {
			t.Error("it stayed although nothing names it")
		}
	})
}

// TestUsesWorlds: in random worlds the index has what the objects name now, and what the archive has.
func TestUsesWorlds(t *testing.T) {
	each(t, func(w *world) {
		seed := uint64(time.Now().UnixNano())
		random := rand.New(rand.NewPCG(seed, 2))
		w.Logf("seed %d", seed)
		named, archived := map[string]string{}, map[string]bool{}
		for range 60 {
			name := fmt.Sprint("d", random.IntN(4))
			switch _, there := named[name]; {
			case random.IntN(3) > 0:
				image := fmt.Sprintf("h.example/shop/web%d:v%d", random.IntN(2), random.IntN(3))
				w.deploy("shop", name, image)
				named[name] = strings.TrimPrefix(image, "h.example/")
			case there && random.IntN(4) > 0:
				w.undeploy("shop", name)
				archived[named[name]+" "+name] = true
				delete(named, name)
			case random.IntN(2) == 0:
				w.purge()
				archived = map[string]bool{}
			}
			w.forget()
			want := []string{}
			for name, image := range named {
				want = append(want, image+" "+name)
			}
			for use := range archived {
				if !slices.Contains(want, use) {
					want = append(want, use)
				}
			}
			slices.Sort(want)
			got := w.Strings(`SELECT DISTINCT path || ':' || reference || ' ' || name FROM image_uses`)
			slices.Sort(got)
			// A workload that was archived with one image and named another before has only the last in the archive.
			for _, use := range want {
				if !slices.Contains(got, use) {
					w.Fatalf("%s is not in the index: %v", use, got)
				}
			}
			now := w.Strings(`SELECT path || ':' || reference || ' ' || name FROM image_uses WHERE left_at IS NULL`)
			slices.Sort(now)
			live := []string{}
			for name, image := range named {
				live = append(live, image+" "+name)
			}
			if slices.Sort(live); !slices.Equal(now, live) {
				w.Fatalf("the index has %v, and the objects name %v", now, live)
			}
		}
	})
}

// TestUsesOfOlderObjects: objects from before the index are found once, and nothing is to be collected until then.
func TestUsesOfOlderObjects(t *testing.T) {
	each(t, func(w *world) {
		for i := range usesStep + 3 {
			w.deploy("shop", fmt.Sprint("d", i), "h.example/shop/web:v1")
		}
		w.Exec(`DELETE FROM image_uses`)
		if w.repos.UsesUnknown() == nil {
			t.Error("nothing was known, and is known")
		}
		if err := w.repos.knowUses(w.Context()); err != nil || w.repos.UsesUnknown() != nil {
			t.Fatal(err)
		}
		if n := w.Count(`SELECT count(*) FROM image_uses WHERE path = 'shop/web' AND reference = 'v1'`); n != usesStep+3 {
			t.Errorf("%d uses", n)
		}
		w.Exec(`DELETE FROM image_uses`)
		if err := w.repos.knowUses(w.Context()); err != nil || w.Count(`SELECT count(*) FROM image_uses`) != 0 {
			t.Errorf("it looked again: %v", err)
		}
	})
}

// TestRaceUse: a workload and a review of the manifest that it names wait for each other on PostgreSQL.
func TestRaceUse(t *testing.T) {
	each(t, func(w *world) {
		if w.DB.Engine() != sqldb.Postgres {
			return // one writer: one comes before the other
		}
		used := w.push("shop/web", "v1", "used")
		w.want(202, "", "DELETE", "/v2/shop/web/manifests/v1")
		w.clock.Advance(25 * time.Hour)
		there := func() int { return w.Count(`SELECT count(*) FROM manifests WHERE digest = $1`, used) }

		// The workload is written, and not committed: the review gives way.
		begun, end := make(chan struct{}), make(chan struct{})
		written := make(chan error, 1)
		go func() {
			written <- w.store.Transact(w.Context(), func(tx *store.Tx) error {
				var b sqldb.Batch
				imageuse.Queue(&b, sqldb.Postgres, object.Key{Kind: "pods", Namespace: "fair", Name: "p"}, "p", []byte(`{"spec":{"containers":[{"image":"shop/web@`+used+`"}]}}`), nil, 0)
				if err := tx.Send(context.WithoutCancel(w.Context()), &b); err != nil {
					return err
				}
				close(begun)
				<-end
				return nil
			})
		}()
		<-begun
		if turn, _ := w.garbage.RunOne(w.Context()); turn.Manifests.Acted != 0 || there() != 1 {
			t.Errorf("the review did not wait: %+v", turn.Manifests)
		}
		close(end)
		if err := <-written; err != nil {
			t.Fatal(err)
		}
		if !w.stays("shop/web", used) {
			t.Fatal("what is used went")
		}

		// The review has begun: the workload waits until the manifest is gone.
		tx, err := w.DB.Begin(w.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if err := tx.Exec(w.Context(), `SELECT pg_advisory_xact_lock(`+imageuse.LockKey+`'shop/web'`+imageuse.LockEnd+`)`); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { w.deploy("fair", "late", "shop/web:v1"); close(done) }()
		w.waiting(1)
		tx.Rollback()
		<-done
	})
}

// TestUsesLockLittle: however many images the objects of a transaction name, on PostgreSQL it holds few locks: the lock table is that of
// all. An object names some hundred images at most.
func TestUsesLockLittle(t *testing.T) {
	each(t, func(w *world) {
		const objects, named = 4, 1000
		locks, rows := int64(0), int64(0)
		if err := w.store.Transact(w.Context(), func(tx *store.Tx) error {
			var b sqldb.Batch
			for i := range objects {
				var images []string
				for j := range named {
					images = append(images, fmt.Sprintf(`{"image":"shop/i%d-%d"}`, i, j))
				}
				body := `{"data":[` + strings.Join(images, ",") + `]}`
				imageuse.Queue(&b, w.DB.Engine(), object.Key{Kind: "controllerrevisions.apps", Namespace: "n", Name: "a"}, fmt.Sprint(i), []byte(body), nil, 0)
			}
			if err := tx.Send(w.Context(), &b); err != nil {
				return err
			}
			if _, err := sqldb.First(w.Context(), tx, []any{&rows}, `SELECT count(*) FROM image_uses`); err != nil || w.DB.Engine() != sqldb.Postgres {
				return err
			}
			_, err := sqldb.First(w.Context(), tx, []any{&locks}, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()`)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if locks > 512+10 || rows == 0 || rows > objects*named/2 {
			t.Errorf("%d locks, and %d images", locks, rows)
		}
	})
}

// TestUsesUnreadable: while a part of the database cannot be read or written, images in use stay unknown, so that nothing is
// collected: they are never known in part.
func TestUsesUnreadable(t *testing.T) {
	w := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite), settings{})
	w.deploy("fair", "web", "registry.example:5000/shop/web:v1")
	dbtest.Unreadable(t, w.DB, "changes gc_settings image_uses objects", func() (any, error) {
		w.repos.usesKnown.Store(false)
		if err := w.Try(func(b *sqldb.Batch) {
			b.Exec(`DELETE FROM gc_settings WHERE name = 'image_uses'`)
			b.Exec(`DELETE FROM image_uses`)
		}); err != nil {
			_ = w.Try(func(b *sqldb.Batch) { b.Exec(`DELETE FROM gc_settings WHERE name = 'image_uses'`) })
		}
		if err := w.repos.knowUses(t.Context()); err != nil || w.repos.UsesUnknown() != nil {
			return nil, cmp.Or(err, w.repos.UsesUnknown())
		}
		var n int
		_, err := w.DB.Row(t.Context(), `SELECT count(*) FROM image_uses`, nil, &n)
		return fmt.Sprint(n, err), nil
	})
}
