package registry

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/review/reviewtest"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// Each reviewer passes the suite of package reviewtest.

func gcSuite(t *testing.T, describe func(w *gcWorld) reviewtest.World) {
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine), func(t *testing.T) {
			reviewtest.Run(t, func(t *testing.T) reviewtest.World {
				return describe(newGCWorld(t, dbtest.OpenDB(t, engine), Options{}))
			})
		})
	}
}

func TestManifestReviewer(t *testing.T) {
	gcSuite(t, func(w *gcWorld) reviewtest.World {
		n := 0
		push := func(tags ...string) string {
			n++
			name := fmt.Sprintf("m%03d", n)
			w.push(image{repo: "r", name: name, layers: []string{"l" + name}, tags: tags})
			return manifestKey(w.repos["r"], w.digestOf(name))
		}
		exists := func(key string) bool {
			repo, digest, err := parseManifestKey(key)
			if err != nil {
				w.Fatal(err)
			}
			return w.count(`SELECT count(*) FROM manifests WHERE repository_id = $1 AND digest = $2`, repo, digest) == 1
		}
		reviewer, transactor := reviewtest.Plain(&manifestReviewer{w.c}, w.c.transact)
		return reviewtest.World{
			DB: w.db, Queue: manifestQueue, Reviewer: reviewer, Transactor: transactor,
			Garbage:   func(*testing.T) string { return push() },
			Live:      func(*testing.T) string { return push(fmt.Sprintf("tag%d", n)) },
			Unknown:   "12345@sha256:none",
			Collected: func(_ *testing.T, key string) bool { return !exists(key) },
			Intact:    func(_ *testing.T, key string) bool { return exists(key) },
		}
	})
}

func TestBlobReviewer(t *testing.T) {
	gcSuite(t, func(w *gcWorld) reviewtest.World {
		n := 0
		next := func() string { n++; return fmt.Sprintf("b%03d", n) }
		rows := func(digest string) int {
			return w.count(`SELECT count(*) FROM blobs WHERE digest = $1`, digest)
		}
		unlinks := func(digest string) int {
			return w.count(`SELECT count(*) FROM gc_unlink_queue WHERE path = $1`, w.paths[w.names[digest]])
		}
		reviewer, transactor := reviewtest.Plain(&blobReviewer{w.c}, w.c.transact)
		return reviewtest.World{
			DB: w.db, Queue: blobQueue, Reviewer: reviewer, Transactor: transactor,
			Garbage: func(*testing.T) string {
				name := next()
				w.blob("r", name)
				return w.digestOf(name)
			},
			Live: func(*testing.T) string {
				name := next()
				w.push(image{repo: "r", name: "m" + name, layers: []string{name}})
				return w.digestOf(name)
			},
			Unknown:   "sha256:none",
			Collected: func(_ *testing.T, key string) bool { return rows(key) == 0 && unlinks(key) == 1 },
			Intact:    func(_ *testing.T, key string) bool { return rows(key) == 1 && unlinks(key) == 0 },
		}
	})
}

func TestUnlinker(t *testing.T) {
	gcSuite(t, func(w *gcWorld) reviewtest.World {
		n := 0
		next := func() string { n++; name := fmt.Sprintf("b%03d", n); w.blob("r", name); return name }
		stored := func(path string) bool {
			_, err := w.store.Stat(w.Context(), path)
			return err == nil
		}
		reviewer, transactor := reviewtest.Plain(&unlinker{w.c}, w.c.transact)
		return reviewtest.World{
			DB: w.db, Queue: unlinkQueue, Reviewer: reviewer, Transactor: transactor,
			Garbage: func(*testing.T) string {
				name := next()
				w.exec(`DELETE FROM blobs WHERE digest = $1`, w.digestOf(name))
				return w.paths[name]
			},
			Live: func(*testing.T) string { // its row exists: it was queued by mistake
				name := next()
				w.exec(`INSERT INTO gc_unlink_queue (path, review_after, review_count, event, created_at) VALUES ($1, 0, 0, 'blob_delete', 0)`, w.paths[name])
				return w.paths[name]
			},
			Unknown:   "00/00000000000000000000000000000000",
			Collected: func(_ *testing.T, path string) bool { return !stored(path) },
			Intact:    func(_ *testing.T, path string) bool { return stored(path) },
		}
	})
}

// TestGCCollects follows images until they are removed.
func TestGCCollects(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		w.push(image{repo: "r", name: "amd", config: "c1", layers: []string{"base", "l1"}})
		w.push(image{repo: "r", name: "arm", config: "c2", layers: []string{"base", "l2"}, tags: []string{"arm"}})
		w.push(image{repo: "r", name: "list", children: []string{"amd", "arm"}, tags: []string{"latest"}})
		w.push(image{repo: "r", name: "sbom", subject: "list", layers: []string{"s"}})
		w.push(image{repo: "r", name: "about-sbom", subject: "sbom"})
		w.push(image{repo: "s", name: "arm", config: "c2", layers: []string{"base", "l2"}, tags: []string{"x"}})
		w.blob("r", "never-used")
		w.settle(23 * time.Hour)
		all := "base; c1; c2; l1; l2; never-used; r@about-sbom; r@amd; r@arm:arm; r@list:latest; r@sbom; s; s@arm:x"
		w.want(all)
		w.drain()
		w.want(strings.Replace(all, "never-used; ", "", 1))
		w.untag("r", "latest")
		w.turn() // the list first; then its manifests are reviewed
		w.wantManifestQueue("r@amd manifest_list_delete 1440m; r@arm manifest_list_delete 1440m; r@sbom subject_delete 1440m")
		w.want("base; c1; c2; l1; l2; r@about-sbom; r@amd; r@arm:arm; r@sbom; s; s@arm:x")
		w.drain()
		w.want("base; c2; l2; r@arm:arm; s@arm:x")
		w.untag("r", "arm")
		w.drain()
		w.want("base; c2; l2; s@arm:x")
		w.untag("s", "x")
		w.drain()
		w.want("")
	})
}

// turn runs one turn of the manifests' reviews.
func (w *gcWorld) turn() {
	w.Helper()
	w.later(25 * time.Hour)
	if r, err := w.c.manifests.RunOne(w.Context()); err != nil || r.Acted != 1 || r.Failed != 0 {
		w.Fatalf("%+v, %v; want one manifest deleted", r, err)
	}
}

// TestGCMissingSubject: a missing subject is accepted, and may be pushed within
// a day.
func TestGCMissingSubject(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		w.push(image{repo: "r", name: "sbom", subject: "m"})
		w.push(image{repo: "r", name: "lost", subject: "nothing"})
		w.push(image{repo: "r", name: "tagged", subject: "nothing", tags: []string{"t"}})
		w.push(image{repo: "r", name: "m", tags: []string{"latest"}})
		w.drain()
		w.want("r@m:latest; r@sbom; r@tagged:t")
	})
}

// TestGCSignatures: they are removed one day after their image.
func TestGCSignatures(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		signed := strings.Replace(w.digestOf("m"), ":", "-", 1) + ".sig"
		w.push(image{repo: "r", name: "m", tags: []string{"latest"}})
		w.push(image{repo: "r", name: "sig", layers: []string{"l"}, tags: []string{signed}})
		w.drain()
		w.want("l; r@m:latest; r@sig:" + signed)
		w.untag("r", "latest")
		w.turn()
		w.wantManifestQueue("r@sig tag_delete 1440m")
		w.want("l; r@sig")
		w.drain()
		w.want("")
	})
}

// TestGCUndone: a tag that is pushed again within the delay keeps its manifest.
func TestGCUndone(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		id := w.push(image{repo: "r", name: "m", layers: []string{"l"}, tags: []string{"1"}})
		w.untag("r", "1")
		w.settle(23 * time.Hour)
		w.exec(putTag, 1, w.repos["r"], "1", id, 0)
		w.drain()
		w.want("l; r@m:1")
	})
}

// hold and delay come from the spec of the Repository, by a trigger.
func (w *gcWorld) hold(repo string, hold bool) {
	w.Helper()
	w.exec(`UPDATE repositories SET gc_hold = $2 WHERE path = $1`, repo, hold)
}

func (w *gcWorld) delay(repo string, milliseconds any) {
	w.Helper()
	w.exec(`UPDATE repositories SET gc_delay = $2 WHERE path = $1`, repo, milliseconds)
}

func TestGCHold(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		w.push(image{repo: "held", name: "m", layers: []string{"l"}})
		w.blob("held", "loose")
		w.push(image{repo: "free", name: "m"})
		w.hold("held", true)
		for range 5 {
			w.settle(25 * time.Hour)
		}
		w.want("held@m; l; loose")
		w.hold("held", false)
		w.drain()
		w.want("")
	})
}

func TestGCDelay(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		w.repo("slow")
		w.repo("fast")
		w.delay("slow", (10 * 24 * time.Hour).Milliseconds())
		w.delay("fast", (2 * time.Hour).Milliseconds())
		for _, repo := range []string{"slow", "fast", "other"} {
			w.push(image{repo: repo, name: "m"})
		}
		w.wantManifestQueue("fast@m manifest_upload 120m; other@m manifest_upload 1440m; slow@m manifest_upload 14400m")
		w.settle(3 * time.Hour)
		w.want("other@m; slow@m")
		w.settle(22 * time.Hour)
		w.want("slow@m")
		w.settle(10 * 24 * time.Hour)
		w.want("")
		w.delay("fast", nil)
		w.push(image{repo: "fast", name: "m"})
		w.wantManifestQueue("fast@m manifest_upload 1440m")
	})
}

func TestGCReviewAfter(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		w.delays(map[string]time.Duration{EventBlobUpload: 4 * time.Hour, EventManifestUpload: 0})
		w.push(image{repo: "r", name: "m", layers: []string{"l"}})
		w.wantBlobQueue("l blob_upload 240m")
		w.wantManifestQueue("r@m manifest_upload 60m") // not before a promise ends
		w.with(Options{ReviewAfter: map[string]time.Duration{EventExistenceCheck: 0, EventLayerDelete: 6 * time.Hour}})
		w.clear()
		w.push(image{repo: "r", name: "m"})
		w.wantManifestQueue("r@m manifest_upload due")
		w.deleteManifest("r", "m")
		w.wantBlobQueue("l layer_delete 360m")
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
	eachGC(t, func(w *gcWorld) {
		var low, high int64
		for i := range 20 {
			w.blob("r", fmt.Sprint("b", i))
		}
		if _, err := w.db.Row(t.Context(), `SELECT min(review_after - created_at), max(review_after - created_at) FROM gc_blob_review_queue`, nil, &low, &high); err != nil {
			t.Fatal(err)
		}
		day := (24 * time.Hour).Milliseconds()
		if low < day || high > day+61_000 || high-low < 1000 {
			t.Errorf("delays from %d to %d, want a day and up to a minute more", low, high)
		}
	})
}

func TestGCSwitches(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := newGCWorld(t, db, Options{KeepManifests: true})
		w.push(image{repo: "r", name: "m", layers: []string{"l"}})
		w.blob("r", "loose")
		w.settle(50 * time.Hour)
		w.want("l; r@m")
		w.with(Options{KeepBlobs: true})
		w.settle(50 * time.Hour)
		w.want("l")
		paused := true
		w.with(Options{Paused: func(context.Context) (bool, error) { return paused, nil }})
		w.settle(50 * time.Hour)
		w.want("l")
		paused = false
		w.drain()
		w.want("")
	})
}

func TestGCAbandonedUploads(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		w.upload("r", "old", time.Now().Add(-25*time.Hour))
		w.upload("r", "busy", time.Now().Add(-25*time.Hour))
		w.upload("r", "new", time.Now())
		w.exec(`UPDATE blob_uploads SET claim_token = 'x', claim_until = $1 WHERE id = 'busy'`, time.Now().Add(time.Minute).UnixMilli())
		w.settle(0)
		w.wantLines("uploads", "busy; new", `SELECT id FROM blob_uploads`)
		w.settle(5 * time.Minute)
		w.wantLines("uploads", "new", `SELECT id FROM blob_uploads`)
		for name, want := range map[string]bool{"old": false, "busy": false, "new": true} {
			if _, err := w.store.Stat(t.Context(), w.paths[name]); (err == nil) != want {
				t.Errorf("bytes of %s: %v", name, err)
			}
		}
		w.drain()
		w.wantLines("uploads", "", `SELECT id FROM blob_uploads`)
	})
}

// TestGCSweep: unknown bytes are removed when they are old enough.
func TestGCSweep(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		w.blob("r", "known")
		w.upload("r", "begun", time.Now())
		lost := w.bytes("lost")
		if n, err := w.c.Sweep(t.Context()); n != 0 || err != nil {
			t.Errorf("swept %d, %v: it may be an upload that is just beginning", n, err)
		}
		w.later(25 * time.Hour)
		for _, want := range []int{1, 0} { // the second time it is already queued
			if n, err := w.c.Sweep(t.Context()); n != want || err != nil {
				t.Errorf("swept %d, want %d: %v", n, want, err)
			}
		}
		if _, err := w.c.unlinks.RunOne(t.Context()); err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]bool{lost: false, w.paths["known"]: true, w.paths["begun"]: true} {
			if _, err := w.store.Stat(t.Context(), path); (err == nil) != want {
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
	eachGC(t, func(w *gcWorld) {
		store := &brokenStore{Store: w.store, broken: true}
		w.c.blobs = store
		w.blob("r", "a")
		w.later(25 * time.Hour)
		if r, err := w.c.blobRows.RunOne(t.Context()); err != nil || r.Acted != 1 {
			t.Fatal(r, err)
		}
		first := w.paths["a"]
		w.blob("r", "a") // the process died, and another one serves the push
		if w.paths["a"] == first {
			t.Fatal("a path was used twice")
		}
		w.later(time.Hour)
		if r, err := w.c.unlinks.RunOne(t.Context()); err != nil || r.Failed != 1 {
			t.Fatalf("%+v, %v; want one failure", r, err)
		}
		if got := w.raw(`SELECT last_error FROM gc_unlink_queue WHERE review_count = 1`); !strings.Contains(got, io.ErrClosedPipe.Error()) {
			t.Errorf("last error %q", got)
		}
		store.broken = false
		w.later(time.Hour)
		if r, err := w.c.unlinks.RunOne(t.Context()); err != nil || r.Acted != 1 {
			t.Fatal(r, err)
		}
		w.check() // the first bytes are gone, the second exist
		w.want("a")
	})
}
