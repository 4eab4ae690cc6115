package backup

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/registry/blobstore/s3test"
	"github.com/exeunt/exeunt/registry/registrytest"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

// TestRoundTrip: a restored server has the objects, images and keys of the time of the
// backup, and nothing later. It issues no revision that was issued before, and tells
// clients with older ones that they are expired.
func TestRoundTrip(t *testing.T) {
	each(t, func(w *world) {
		storetest.Create(w, w.store, storetest.Object(w, thing("kept"), `"data":"tab\there, \\N and a line\nbreak"`))
		storetest.Create(w, w.store, storetest.Object(w, thing("gone"), `"data":"1"`))
		if _, err := w.store.Delete(w.Context(), store.DeleteRequest{Key: thing("gone")}); err != nil {
			w.Fatal(err)
		}
		w.Push(registrytest.Image{Repo: "shop/web", Name: "image", Config: "config", Layers: []string{"one", "two"}, Tags: []string{"v1"}})
		w.Small("shop/web", "small")
		w.Exec(`INSERT INTO blob_uploads (id, repository_id, path, algorithm, size, created_at, updated_at) VALUES ('u', $1, 'unfinished', 'sha256', 0, 1, 1)`, w.Repo("shop/web"))
		before := w.store.Revision()
		made := w.create(CreateOptions{Version: "test"})
		if made.Blobs != 3 || made.Copied != 3 {
			w.Errorf("the backup has %d blobs, copied %d", made.Blobs, made.Copied)
		}
		storetest.Create(w, w.store, storetest.Object(w, thing("later"), ""))
		kept, _ := storetest.Get(w, w.store, thing("kept"))
		w.wantWhole(1)

		restored, revision := w.restore()
		w.wantKeys(restored)
		for _, layer := range []string{"config", "one", "two"} {
			w.wantBlob(restored, w.Paths[layer], layer)
		}
		db := dbtest.Connect(w, restored.Database)
		st := storetest.Run(w, store.Options{DB: db})
		if again, _ := storetest.Get(w, st, thing("kept")); string(again.Body) != string(kept.Body) || again.Revision != kept.Revision {
			w.Errorf("the object is %d %s, want %d %s", again.Revision, again.Body, kept.Revision, kept.Body)
		}
		for _, name := range []string{"gone", "later"} {
			if _, err := st.Get(w.Context(), thing(name)); !object.Is(err, object.NotFound) {
				w.Errorf("%s is there: %v", name, err)
			}
		}
		for _, from := range []int64{1, before, before + 1, revision - 1} {
			if _, err := st.Watch(w.Context(), store.WatchRequest{Kind: things.Kind, From: from}); !object.Is(err, object.Expired) {
				w.Errorf("a watch from %d: %v", from, err)
			}
		}
		if _, err := st.Watch(w.Context(), store.WatchRequest{Kind: things.Kind, From: revision}); err != nil {
			w.Errorf("a watch from %d: %v", revision, err)
		}
		if o := storetest.Create(w, st, storetest.Object(w, thing("new"), "")); o.Revision != revision+1 {
			w.Errorf("the first revision is %d, want %d", o.Revision, revision+1)
		}
		w.wantRows(db)
		if from, found, err := RestoredFrom(w.Context(), db); err != nil || !found || from.ID != made.ID {
			w.Errorf("restored from %+v: %v", from, err)
		}
		next, err := takeHold(w.Context(), db, "next", "", time.Minute, func() Progress { return Progress{} })
		if err == nil {
			err = next.end(w.Context())
		}
		if from, found, unread := RestoredFrom(w.Context(), db); errors.Join(err, unread) != nil || !found || from.ID != made.ID {
			w.Errorf("after the next backup: restored from %+v: %v, %v", from, err, unread)
		}
		// Counters go on: the next rows get new ids.
		other := *w.World
		other.SQL, other.Repos = dbtest.NewSQL(w, db), map[string]int64{}
		other.Push(registrytest.Image{Repo: "shop/other", Name: "next", Config: "config", Layers: []string{"three"}})
	})
}

// wantKeys checks that the keys are there, for their owner only.
func (w *world) wantKeys(s Server) {
	w.Helper()
	for name, content := range map[string]string{"pki/ca.crt": "certificate", "pki/ca.key": "key", "kubeconfig": "login", encryptionFile: "secret"} {
		path := filepath.Join(s.Data, name)
		got, err := os.ReadFile(path)
		if err != nil || string(got) != content {
			w.Errorf("%s is %q: %v", name, got, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			w.Errorf("%s has mode %v: %v", name, info.Mode(), err)
		}
	}
}

// wantRows compares the number of rows of the tables that a restore leaves as they were.
func (w *world) wantRows(db *sqldb.DB) {
	w.Helper()
	other := dbtest.NewSQL(w, db)
	for _, table := range []string{"repositories", "manifests", "layers", "tags", "blobs", "small_blobs", "gc_blobs_layers", "gc_blob_review_queue", "gc_review_after_defaults", "archive", "data_id", "migrations"} {
		if a, b := w.Count("SELECT count(*) FROM "+table), other.Count("SELECT count(*) FROM "+table); a != b {
			w.Errorf("%s has %d rows, restored %d", table, a, b)
		}
	}
	if n := other.Count("SELECT count(*) FROM blob_uploads"); n != 0 {
		w.Errorf("%d uploads without bytes", n)
	}
}

// TestRestoreRefuses: a restore changes nothing in a directory or database that is used.
func TestRestoreRefuses(t *testing.T) {
	each(t, func(w *world) {
		w.Blob("shop/web", "one")
		w.create(CreateOptions{})
		target := w.openTarget()
		m, err := target.Find(w.Context(), "")
		if err != nil {
			w.Fatal(err)
		}
		refused := func(what string, to Server) {
			if _, err := Restore(w.Context(), target, m, to, nil); !errors.Is(err, ErrUsed) {
				w.Errorf("%s: %v", what, err)
			}
		}
		fresh := ""
		if m.Engine == string(sqldb.Postgres) {
			fresh = dbtest.Open(w, sqldb.Postgres)
			refused("a used database", Server{Data: w.TempDir(), Database: w.server.Database})
		} else {
			refused("a used database", Server{Data: filepath.Join(w.TempDir(), "new"), Database: w.server.Database})
		}
		refused("a used directory", Server{Data: w.server.Data, Database: fresh})
		refused("a used blob store", Server{Data: filepath.Join(w.TempDir(), "new"), Database: fresh, Storage: w.server.Storage})
		foreign := Server{Data: filepath.Join(w.TempDir(), "new"), Database: fresh, Storage: filepath.Join(w.TempDir(), "blobs")}
		blobs, err := blobstore.OpenDir(foreign.Storage)
		if err != nil {
			w.Fatal(err)
		}
		path := blobstore.PathOf(w.DigestOf("foreign"))
		if err := write(w.Context(), blobs, path, strings.NewReader("foreign"), nil); err != nil {
			w.Fatal(err)
		}
		refused("a blob store with bytes and without a mark", foreign)
		w.wantBlob(foreign, path, "foreign")
		other := Server{Data: filepath.Join(w.TempDir(), "new"), Database: "postgres://nowhere.invalid/x"}
		if m.Engine == string(sqldb.Postgres) {
			other.Database = ""
		}
		if _, err := Restore(w.Context(), target, m, other, nil); err == nil || !strings.Contains(err.Error(), "is of "+m.Engine) {
			w.Errorf("the other engine: %v", err)
		}
	})
}

// TestRestoreAgain: a restore that was interrupted can be repeated, over any part of it.
func TestRestoreAgain(t *testing.T) {
	each(t, func(w *world) {
		w.Blob("shop/web", "one")
		w.Blob("shop/web", "two")
		w.create(CreateOptions{})
		target := w.openTarget()
		m, err := target.Find(w.Context(), "")
		if err != nil {
			w.Fatal(err)
		}
		to := Server{Data: filepath.Join(w.TempDir(), "restored")}
		if m.Engine == string(sqldb.Postgres) {
			to.Database = dbtest.Open(w, sqldb.Postgres)
		}
		for _, step := range []string{"blobs", "database"} {
			ctx, stop := context.WithCancel(w.Context())
			_, err := Restore(ctx, target, m, to, func(p Progress) {
				if p.Step == step {
					stop()
				}
			})
			if err == nil {
				w.Fatalf("the restore ended, although it was interrupted at %s", step)
			}
			if _, err := os.Stat(filepath.Join(to.Data, RestoringFile)); err != nil {
				w.Fatalf("after an interruption at %s: %v", step, err)
			}
		}
		storage, err := blobstore.Open(w.Context(), to.WithDefaults().Storage)
		if err != nil {
			w.Fatal(err)
		}
		for _, id := range []string{"of-another-server", m.StoreID} {
			if err := storage.(blobstore.Marked).SetMark(w.Context(), id, true); err != nil {
				w.Fatal(err)
			}
			if _, err := Restore(w.Context(), target, m, to, nil); errors.Is(err, ErrUsed) == (id == m.StoreID) || err != nil && id == m.StoreID {
				w.Fatalf("storage of %s: %v", id, err)
			}
		}
		if _, err := os.Stat(filepath.Join(to.Data, RestoringFile)); !errors.Is(err, os.ErrNotExist) {
			w.Errorf("the directory is still marked: %v", err)
		}
		w.wantBlob(to.WithDefaults(), w.Paths["one"], "one")
		w.wantBlob(to.WithDefaults(), w.Paths["two"], "two")
	})
}

// TestIncremental: a second backup copies the new blobs only, and prune removes those
// that no backup needs any more.
func TestIncremental(t *testing.T) {
	w := newWorld(t, sqldb.SQLite)
	w.Blob("shop/web", "old")
	w.Blob("shop/web", "shared")
	w.create(CreateOptions{})
	w.drop("old")
	w.Blob("shop/web", "new")
	if made := w.create(CreateOptions{}); made.Blobs != 2 || made.Copied != 1 || made.CopiedBytes != 3 {
		t.Errorf("the second backup: %+v", made)
	}
	w.wantWhole(2)
	last, found, err := Last(t.Context(), w.DB)
	if err != nil || !found || last.Target != w.target {
		t.Errorf("the last backup is %+v: %v", last, err)
	}
	if n := w.Count("SELECT count(*) FROM backups"); n != 1 {
		t.Errorf("the database has %d records of backups", n)
	}
	target := w.openTarget()
	both, err := target.List(t.Context())
	if err != nil || len(both) != 2 {
		t.Fatal(both, err)
	}
	for _, m := range both {
		if found, err := target.Find(t.Context(), m.ID); err != nil || found.ID != m.ID {
			t.Errorf("looked for %s, found %s: %v", m.ID, found.ID, err)
		}
	}
	if m, err := target.Find(t.Context(), "none"); err == nil || !strings.Contains(err.Error(), "has no backup none") {
		t.Errorf("found %s: %v", m.ID, err)
	}
	newer := both[1]
	newer.ID, newer.Format = "20990101T000000Z-aaaaaaaa", format+1
	if err := target.put(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	if m, err := target.Find(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "a newer version made it") {
		t.Errorf("a backup of a newer version: %s, %v", m.ID, err)
	}
	if err := target.store.RemoveDocument(t.Context(), newer.ID+manifestSuffix); err != nil {
		t.Fatal(err)
	}
	removed, err := target.Prune(t.Context(), 1)
	if err != nil || len(removed) != 1 {
		t.Fatalf("pruned %v: %v", removed, err)
	}
	w.wantWhole(1)
	for name, want := range map[string]bool{"old": false, "shared": true, "new": true} {
		if _, err := target.store.Stat(t.Context(), blobstore.PathOf(w.DigestOf(name))); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	restored, _ := w.restore()
	w.wantBlob(restored, w.Paths["shared"], "shared")
}

// TestVerify: bytes that are missing, cut short, too long or changed are found, and a restore
// stops at them.
func TestVerify(t *testing.T) {
	w := newWorld(t, sqldb.SQLite)
	for _, name := range []string{"missing", "short", "long", "changed", "whole"} {
		w.Blob("shop/web", name)
	}
	w.create(CreateOptions{})
	file := func(name string) string { return filepath.Join(w.target, blobstore.PathOf(w.DigestOf(name))) }
	for _, err := range []error{os.Remove(file("missing")), os.Truncate(file("short"), 2), os.Truncate(file("long"), 5), os.WriteFile(file("changed"), []byte("CHANGED"), 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	target := w.openTarget()
	m, err := target.Find(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for quick, want := range map[bool]int{true: 3, false: 4} {
		var found []string
		if err := target.Verify(t.Context(), m, quick, func(err error) { found = append(found, err.Error()) }, nil); err != nil || len(found) != want {
			t.Errorf("quick %v: %q, %v", quick, found, err)
		}
	}
	if _, err := Restore(t.Context(), target, m, Server{Data: filepath.Join(t.TempDir(), "new")}, nil); err == nil {
		t.Error("a damaged backup was restored")
	}
	// The next backup copies again what has the wrong size or is missing.
	if made := w.create(CreateOptions{}); made.Copied != 3 {
		t.Errorf("the next backup copied %d blobs", made.Copied)
	}
}

// TestBucket: the target can be a bucket. A second process is refused while one writes.
func TestBucket(t *testing.T) {
	each(t, func(w *world) {
		t := w.T
		w.target = s3test.Location(t)
		w.Blob("shop/web", "one")
		first := w.create(CreateOptions{between: func(step string) {
			if step != "blobs" {
				return
			}
			if _, err := w.openTarget().Prune(t.Context(), 1); !errors.Is(err, ErrBusy) {
				t.Errorf("a prune during a backup: %v", err)
			}
		}})
		w.Blob("shop/web", "two")
		if made := w.create(CreateOptions{}); made.Copied != 1 {
			t.Errorf("the second backup copied %d blobs", made.Copied)
		}
		w.wantWhole(2)
		target := w.openTarget()
		if removed, err := target.Prune(t.Context(), 1); err != nil || len(removed) != 1 || removed[0].ID != first.ID {
			t.Errorf("pruned %v: %v", removed, err)
		}
		w.wantWhole(1)
		restored, _ := w.restore()
		w.wantBlob(restored, w.Paths["two"], "two")
		if locks, err := target.store.ListDocuments(t.Context()); err != nil || len(locks) != 1 {
			t.Errorf("the bucket has the documents %v: %v", locks, err)
		}
	})
}

// TestOlderSchema: a backup by a newer program changes nothing: it does not migrate the
// database of a server that runs with the version before.
func TestOlderSchema(t *testing.T) {
	t.Parallel()
	database, data := dbtest.Migrated(t, sqldb.SQLite), t.TempDir()
	db, err := sqldb.OpenAsIs(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if err := db.Down(t.Context(), 9, false); err != nil {
		t.Fatal(err)
	}
	target, err := OpenTarget(t.Context(), filepath.Join(data, "target"), true)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Create(t.Context(), Server{Data: data, Database: database}, target, CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), "the database does not have step 10 (trace) of this program") {
		t.Errorf("a backup of the schema before: %v", err)
	}
	steps, err := db.Steps(t.Context())
	if err != nil || steps[9].Done {
		t.Errorf("the backup has migrated the database: %v, %v", steps, err)
	}
}

// TestProgress: every replica can tell how far a backup is while it runs, and that none runs.
func TestProgress(t *testing.T) {
	each(t, func(w *world) {
		w.Blob("shop/web", "one")
		steps := map[string]Progress{}
		made := w.create(CreateOptions{between: func(step string) {
			running, err := Now(w.Context(), w.DB)
			if err != nil || (running == nil) != (step == "sweep") {
				w.Errorf("at %s: %+v, %v", step, running, err)
				return
			}
			if running != nil {
				steps[running.ID+" "+step] = running.Progress
			}
		}})
		if p := steps[made.ID+" database"]; p.Step != "database" || p.Total != 0 {
			w.Errorf("at the database: %+v", p)
		}
		if p := steps[made.ID+" blobs"]; p.Step != "blobs" || p.Total != 1 || p.Done != 0 {
			w.Errorf("at the blobs: %+v", p)
		}
	})
}
