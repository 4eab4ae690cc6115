package collect

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/registry/internal/statement"
	"github.com/exeunt/exeunt/review/reviewtest"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// Each reviewer passes the suite of package reviewtest.

func gcSuite(t *testing.T, describe func(w *world) reviewtest.World) {
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine), func(t *testing.T) {
			reviewtest.Run(t, func(t *testing.T) reviewtest.World {
				t.Parallel() // each has a database of its own
				return describe(newWorld(t, dbtest.OpenDB(t, engine), Options{}))
			})
		})
	}
}

func TestManifestReviewer(t *testing.T) {
	gcSuite(t, func(w *world) reviewtest.World {
		n := 0
		push := func(tags ...string) string {
			n++
			name := fmt.Sprintf("m%03d", n)
			w.Push(image{Repo: "r", Name: name, Layers: []string{"l" + name}, Tags: tags})
			return manifestKey(w.Repos["r"], w.DigestOf(name))
		}
		exists := func(key string) bool {
			repo, digest, err := parseManifestKey(key)
			if err != nil {
				w.Fatal(err)
			}
			return w.Count(`SELECT count(*) FROM manifests WHERE repository_id = $1 AND digest = $2`, repo, digest) == 1
		}
		reviewer, transactor := reviewtest.Plain(&manifestReviewer{w.c}, w.c.transact)
		return reviewtest.World{
			DB: w.DB, Queue: manifestQueue, Reviewer: reviewer, Transactor: transactor,
			Garbage:   func(*testing.T) string { return push() },
			Live:      func(*testing.T) string { return push(fmt.Sprintf("tag%d", n)) },
			Unknown:   "12345@sha256:none",
			Collected: func(_ *testing.T, key string) bool { return !exists(key) },
			Intact:    func(_ *testing.T, key string) bool { return exists(key) },
		}
	})
}

func TestBlobReviewer(t *testing.T) {
	gcSuite(t, func(w *world) reviewtest.World {
		n := 0
		next := func() string { n++; return fmt.Sprintf("b%03d", n) }
		rows := func(digest string) int {
			return w.Count(`SELECT count(*) FROM blobs WHERE digest = $1`, digest)
		}
		unlinks := func(digest string) int {
			return w.Count(`SELECT count(*) FROM gc_unlink_queue WHERE path = $1`, w.Paths[w.Names[digest]])
		}
		reviewer, transactor := reviewtest.Plain(&blobReviewer{w.c}, w.c.transact)
		return reviewtest.World{
			DB: w.DB, Queue: blobQueue, Reviewer: reviewer, Transactor: transactor,
			Garbage: func(*testing.T) string {
				name := next()
				w.Blob("r", name)
				return w.DigestOf(name)
			},
			Live: func(*testing.T) string {
				name := next()
				w.Push(image{Repo: "r", Name: "m" + name, Layers: []string{name}})
				return w.DigestOf(name)
			},
			Unknown:   "sha256:none",
			Collected: func(_ *testing.T, key string) bool { return rows(key) == 0 && unlinks(key) == 1 },
			Intact:    func(_ *testing.T, key string) bool { return rows(key) == 1 && unlinks(key) == 0 },
		}
	})
}

func TestUnlinker(t *testing.T) {
	gcSuite(t, func(w *world) reviewtest.World {
		n := 0
		next := func() string { n++; name := fmt.Sprintf("b%03d", n); w.Blob("r", name); return name }
		stored := func(path string) bool {
			_, err := w.Store.Stat(w.Context(), path)
			return err == nil
		}
		reviewer, transactor := reviewtest.Plain(&unlinker{w.c}, w.c.transact)
		return reviewtest.World{
			DB: w.DB, Queue: unlinkQueue, Reviewer: reviewer, Transactor: transactor,
			Garbage: func(*testing.T) string {
				name := next()
				w.Exec(`DELETE FROM blobs WHERE digest = $1`, w.DigestOf(name))
				return w.Paths[name]
			},
			Live: func(*testing.T) string { // its row exists: it was queued by mistake
				name := next()
				w.Exec(`INSERT INTO gc_unlink_queue (path, review_after, review_count, event, created_at) VALUES ($1, 0, 0, 'blob_delete', 0)`, w.Paths[name])
				return w.Paths[name]
			},
			Unknown:   "00/00000000000000000000000000000000",
			Collected: func(_ *testing.T, path string) bool { return !stored(path) },
			Intact:    func(_ *testing.T, path string) bool { return stored(path) },
		}
	})
}

// TestGCCollects follows images until they are removed.
func TestGCCollects(t *testing.T) {
	each(t, func(w *world) {
		w.Push(image{Repo: "r", Name: "amd", Config: "c1", Layers: []string{"base", "l1"}})
		w.Push(image{Repo: "r", Name: "arm", Config: "c2", Layers: []string{"base", "l2"}, Tags: []string{"arm"}})
		w.Push(image{Repo: "r", Name: "list", Children: []string{"amd", "arm"}, Tags: []string{"latest"}})
		w.Push(image{Repo: "r", Name: "sbom", Subject: "list", Layers: []string{"s"}})
		w.Push(image{Repo: "r", Name: "about-sbom", Subject: "sbom"})
		w.Push(image{Repo: "s", Name: "arm", Config: "c2", Layers: []string{"base", "l2"}, Tags: []string{"x"}})
		w.Blob("r", "never-used")
		w.settle(23 * time.Hour)
		all := "base; c1; c2; l1; l2; never-used; r@about-sbom; r@amd; r@arm:arm; r@list:latest; r@sbom; s; s@arm:x"
		w.Want(all)
		w.drain()
		w.Want(strings.Replace(all, "never-used; ", "", 1))
		w.Untag("r", "latest")
		w.turn() // the list first; then its manifests are reviewed
		w.WantManifestQueue("r@amd manifest_list_delete 1440m; r@arm manifest_list_delete 1440m; r@sbom subject_delete 1440m")
		w.Want("base; c1; c2; l1; l2; r@about-sbom; r@amd; r@arm:arm; r@sbom; s; s@arm:x")
		w.drain()
		w.Want("base; c2; l2; r@arm:arm; s@arm:x")
		w.Untag("r", "arm")
		w.drain()
		w.Want("base; c2; l2; s@arm:x")
		w.Untag("s", "x")
		w.drain()
		w.Want("")
	})
}

// turn runs one turn of the manifests' reviews.
func (w *world) turn() {
	w.Helper()
	w.clock.Advance(25 * time.Hour)
	if r, err := w.c.manifests.RunOne(w.Context()); err != nil || r.Acted != 1 || r.Failed != 0 {
		w.Fatalf("%+v, %v; want one manifest deleted", r, err)
	}
}

// TestGCMissingSubject: a missing subject is accepted, and may be pushed within
// a day.
func TestGCMissingSubject(t *testing.T) {
	each(t, func(w *world) {
		w.Push(image{Repo: "r", Name: "sbom", Subject: "m"})
		w.Push(image{Repo: "r", Name: "lost", Subject: "nothing"})
		w.Push(image{Repo: "r", Name: "tagged", Subject: "nothing", Tags: []string{"t"}})
		w.Push(image{Repo: "r", Name: "m", Tags: []string{"latest"}})
		w.drain()
		w.Want("r@m:latest; r@sbom; r@tagged:t")
	})
}

// TestGCSignatures: they are removed one day after their image.
func TestGCSignatures(t *testing.T) {
	each(t, func(w *world) {
		signed := strings.Replace(w.DigestOf("m"), ":", "-", 1) + ".sig"
		w.Push(image{Repo: "r", Name: "m", Tags: []string{"latest"}})
		w.Push(image{Repo: "r", Name: "sig", Layers: []string{"l"}, Tags: []string{signed}})
		w.drain()
		w.Want("l; r@m:latest; r@sig:" + signed)
		w.Untag("r", "latest")
		w.turn()
		w.WantManifestQueue("r@sig tag_delete 1440m")
		w.Want("l; r@sig")
		w.drain()
		w.Want("")
	})
}

// TestGCUndone: a tag that is pushed again within the delay keeps its manifest.
func TestGCUndone(t *testing.T) {
	each(t, func(w *world) {
		id := w.Push(image{Repo: "r", Name: "m", Layers: []string{"l"}, Tags: []string{"1"}})
		w.Untag("r", "1")
		w.settle(23 * time.Hour)
		w.Exec(statement.PutTag, 1, w.Repos["r"], "1", id, 0)
		w.drain()
		w.Want("l; r@m:1")
	})
}

// hold and delay come from the spec of the Repository, by a trigger.
func (w *world) hold(repo string, hold bool) {
	w.Helper()
	w.Exec(`UPDATE repositories SET gc_hold = $2 WHERE path = $1`, repo, hold)
}

func (w *world) delay(repo string, milliseconds any) {
	w.Helper()
	w.Exec(`UPDATE repositories SET gc_delay = $2 WHERE path = $1`, repo, milliseconds)
}

func TestGCHold(t *testing.T) {
	each(t, func(w *world) {
		w.Push(image{Repo: "held", Name: "m", Layers: []string{"l"}})
		w.Blob("held", "loose")
		w.Push(image{Repo: "free", Name: "m"})
		w.hold("held", true)
		for range 5 {
			w.settle(25 * time.Hour)
		}
		w.Want("held@m; l; loose")
		w.hold("held", false)
		w.drain()
		w.Want("")
	})
}

func TestGCDelay(t *testing.T) {
	each(t, func(w *world) {
		w.Repo("slow")
		w.Repo("fast")
		w.delay("slow", (10 * 24 * time.Hour).Milliseconds())
		w.delay("fast", (2 * time.Hour).Milliseconds())
		for _, repo := range []string{"slow", "fast", "other"} {
			w.Push(image{Repo: repo, Name: "m"})
		}
		w.WantManifestQueue("fast@m manifest_upload 120m; other@m manifest_upload 1440m; slow@m manifest_upload 14400m")
		w.settle(3 * time.Hour)
		w.Want("other@m; slow@m")
		w.settle(22 * time.Hour)
		w.Want("slow@m")
		w.settle(10 * 24 * time.Hour)
		w.Want("")
		w.delay("fast", nil)
		w.Push(image{Repo: "fast", Name: "m"})
		w.WantManifestQueue("fast@m manifest_upload 1440m")
	})
}

func TestGCReviewAfter(t *testing.T) {
	each(t, func(w *world) {
		w.delays(map[string]time.Duration{EventBlobUpload: 4 * time.Hour, EventManifestUpload: 0})
		w.Push(image{Repo: "r", Name: "m", Layers: []string{"l"}})
		w.WantBlobQueue("l blob_upload 240m")
		w.WantManifestQueue("r@m manifest_upload 60m") // not before a promise ends
		w.with(Options{ReviewAfter: map[string]time.Duration{EventExistenceCheck: 0, EventLayerDelete: 6 * time.Hour}})
		w.clear()
		w.Push(image{Repo: "r", Name: "m"})
		w.WantManifestQueue("r@m manifest_upload due")
		w.DeleteManifest("r", "m")
		w.WantBlobQueue("l layer_delete 360m")
		delays, err := w.c.ReviewAfter(w.Context())
		if err != nil || len(delays) != len(events) || delays[EventLayerDelete] != 6*time.Hour || delays[EventTagDelete] != 24*time.Hour {
			t.Errorf("delays %v: %v", delays, err)
		}
		if err := w.c.SetReviewAfter(w.Context(), "teatime", time.Hour); err == nil {
			t.Error("accepted an event that does not exist")
		}
		if err := w.c.SetReviewAfter(w.Context(), EventTagDelete, -1); err == nil {
			t.Error("accepted a negative delay")
		}
	})
}

// TestGCJitter: reviews that are queued together run at different times.
func TestGCJitter(t *testing.T) {
	each(t, func(w *world) {
		var low, high int64
		for i := range 20 {
			w.Blob("r", fmt.Sprint("b", i))
		}
		if _, err := w.DB.Row(t.Context(), `SELECT min(review_after - created_at), max(review_after - created_at) FROM gc_blob_review_queue`, nil, &low, &high); err != nil {
			t.Fatal(err)
		}
		day := (24 * time.Hour).Milliseconds()
		if low < day || high > day+61_000 || high-low < 1000 {
			t.Errorf("delays from %d to %d, want a day and up to a minute more", low, high)
		}
	})
}

func TestGCSwitches(t *testing.T) {
	dbtest.EachParallel(t, func(t *testing.T, db *sqldb.DB) {
		w := newWorld(t, db, Options{KeepManifests: true})
		w.Push(image{Repo: "r", Name: "m", Layers: []string{"l"}})
		w.Blob("r", "loose")
		w.settle(50 * time.Hour)
		w.Want("l; r@m")
		w.with(Options{KeepBlobs: true})
		w.settle(50 * time.Hour)
		w.Want("l")
		paused := true
		w.with(Options{Paused: func(context.Context) (bool, error) { return paused, nil }})
		w.settle(50 * time.Hour)
		w.Want("l")
		paused = false
		w.drain()
		w.Want("")
	})
}

func TestGCAbandonedUploads(t *testing.T) {
	each(t, func(w *world) {
		w.upload("r", "old", time.Now().Add(-25*time.Hour))
		w.upload("r", "busy", time.Now().Add(-25*time.Hour))
		w.upload("r", "new", time.Now())
		w.Exec(`UPDATE blob_uploads SET claim_token = 'x', claim_until = $1 WHERE id = 'busy'`, time.Now().Add(time.Minute).UnixMilli())
		w.settle(0)
		w.WantLines("uploads", "busy; new", `SELECT id FROM blob_uploads`)
		w.settle(5 * time.Minute)
		w.WantLines("uploads", "new", `SELECT id FROM blob_uploads`)
		for name, want := range map[string]bool{"old": false, "busy": false, "new": true} {
			if _, err := w.Store.Stat(t.Context(), w.Paths[name]); (err == nil) != want {
				t.Errorf("bytes of %s: %v", name, err)
			}
		}
		w.drain()
		w.WantLines("uploads", "", `SELECT id FROM blob_uploads`)
	})
}

// TestGCBackup: while a backup runs no bytes are removed, because its copy of the database may name them; afterwards they are.
func TestGCBackup(t *testing.T) {
	each(t, func(w *world) {
		w.Blob("r", "b")
		w.Exec(`DELETE FROM blobs WHERE digest = $1`, w.DigestOf("b"))
		w.Exec(`INSERT INTO backups (id, target, began_at, hold_until) VALUES ('b', 't', 0, $1)`, time.Now().Add(time.Hour).UnixMilli())
		w.settle(25 * time.Hour)
		w.settle(time.Hour)
		if _, err := w.Store.Stat(t.Context(), w.Paths["b"]); err != nil {
			t.Errorf("the bytes are gone while a backup runs: %v", err)
		}
		w.Exec(`UPDATE backups SET hold_until = 0`)
		w.drain()
		if _, err := w.Store.Stat(t.Context(), w.Paths["b"]); err == nil {
			t.Error("the bytes stay after the backup")
		}
	})
}

// TestGCSweep: unknown bytes are removed when they are old enough.
func TestGCSweep(t *testing.T) {
	each(t, func(w *world) {
		w.Blob("r", "known")
		w.upload("r", "begun", time.Now())
		lost := w.Bytes("lost")
		if n, err := w.c.Sweep(t.Context()); n != 0 || err != nil {
			t.Errorf("swept %d, %v: want 0: these may be uploads that just began", n, err)
		}
		w.clock.Advance(25 * time.Hour)
		for _, want := range []int{1, 0} { // the second time it is already queued
			if n, err := w.c.Sweep(t.Context()); n != want || err != nil {
				t.Errorf("swept %d, want %d: %v", n, want, err)
			}
		}
		if _, err := w.c.unlinks.RunOne(t.Context()); err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]bool{lost: false, w.Paths["known"]: true, w.Paths["begun"]: true} {
			if _, err := w.Store.Stat(t.Context(), path); (err == nil) != want {
				t.Errorf("%s: %v", path, err)
			}
		}
	})
}

// brokenStore fails to remove.
type brokenStore struct {
	blobstore.Store
	broken bool
}

func (s *brokenStore) Remove(ctx context.Context, path string) error {
	if s.broken {
		return io.ErrClosedPipe
	}
	return s.Store.Remove(ctx, path)
}

// TestGCRepush: between the deletion of a row and of its bytes, the process may
// crash, the store may fail, and the same content may be pushed again.
func TestGCRepush(t *testing.T) {
	each(t, func(w *world) {
		store := &brokenStore{Store: w.Store, broken: true}
		w.c.blobs = store
		w.Blob("r", "a")
		w.clock.Advance(25 * time.Hour)
		if r, err := w.c.blobRows.RunOne(t.Context()); err != nil || r.Acted != 1 {
			t.Fatal(r, err)
		}
		first := w.Paths["a"]
		w.Blob("r", "a") // the process died, and another one serves the push
		if w.Paths["a"] == first {
			t.Fatal("a path was used twice")
		}
		w.clock.Advance(time.Hour)
		if r, err := w.c.unlinks.RunOne(t.Context()); err != nil || r.Failed != 1 {
			t.Fatalf("%+v, %v; want one failure", r, err)
		}
		if got := strings.Join(w.Strings(`SELECT last_error FROM gc_unlink_queue WHERE review_count = 1`), " "); !strings.Contains(got, io.ErrClosedPipe.Error()) {
			t.Errorf("last error %q", got)
		}
		store.broken = false
		w.clock.Advance(time.Hour)
		if r, err := w.c.unlinks.RunOne(t.Context()); err != nil || r.Acted != 1 {
			t.Fatal(r, err)
		}
		w.Check() // the first bytes are gone, the second exist
		w.Want("a")
	})
}

// hangingStore does not end a removal before its time limit, while it hangs.
type hangingStore struct {
	blobstore.Store
	hangs bool
}

func (s *hangingStore) Remove(ctx context.Context, path string) error {
	if s.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.Store.Remove(ctx, path)
}

// TestGCRemoveTimeout: a removal that does not end is given up after its limit, counted,
// and done by a later review.
func TestGCRemoveTimeout(t *testing.T) {
	each(t, func(w *world) {
		lost := w.Bytes("lost")
		w.clock.Advance(25 * time.Hour)
		if n, err := w.c.Sweep(t.Context()); n != 1 || err != nil {
			t.Errorf("swept %d: %v", n, err)
		}
		store := &hangingStore{Store: w.Store, hangs: true}
		w.c.blobs, w.c.options.RemoveTimeout = store, 10*time.Millisecond
		if r, err := w.c.unlinks.RunOne(t.Context()); err != nil || r.Failed != 1 {
			t.Errorf("while the store hangs: %+v, %v; want one failure", r, err)
		}
		if n := testutil.ToFloat64(w.c.metrics.timeouts); n != 1 {
			t.Errorf("counted %v timeouts", n)
		}
		store.hangs = false
		w.clock.Advance(25 * time.Hour)
		if r, err := w.c.unlinks.RunOne(t.Context()); err != nil || r.Acted != 1 {
			t.Errorf("when the store works: %+v, %v", r, err)
		}
		if _, err := w.Store.Stat(t.Context(), lost); err == nil {
			t.Error("the bytes are still there")
		}
	})
}
