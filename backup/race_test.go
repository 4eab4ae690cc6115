package backup

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/registry/registrytest"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// The tests of docs/spec/backup.md.

// TestUnlinkerWaits: a blob that is deleted after the copy of the database keeps its
// bytes until the backup has ended.
func TestUnlinkerWaits(t *testing.T) {
	each(t, func(w *world) {
		w.Blob("shop/web", "one")
		c := w.collector(w.Store)
		w.create(CreateOptions{between: func(step string) {
			if step == "blobs" {
				w.drop("one")
				w.collect(c)
				if !w.stored(w.Paths["one"]) {
					w.Error("the bytes were unlinked during the backup")
				}
			}
		}})
		restored, _ := w.restore()
		w.wantBlob(restored, w.Paths["one"], "one")
		w.Exec(`UPDATE gc_unlink_queue SET review_after = 0`)
		w.collect(w.collector(w.Store))
		if w.stored(w.Paths["one"]) {
			w.Error("the bytes stay after the backup")
		}
	})
}

// slowRemove is a store that waits before it removes.
type slowRemove struct {
	blobstore.Store
	began, goOn chan struct{}
}

func (s slowRemove) Remove(ctx context.Context, path string) error {
	close(s.began)
	<-s.goOn
	return s.Store.Remove(ctx, path)
}

// TestUnlinkerIsAhead: an unlinker that has decided before the hold removes bytes during
// the backup. The copy of the database does not name them.
func TestUnlinkerIsAhead(t *testing.T) {
	each(t, func(w *world) {
		w.Blob("shop/web", "one")
		w.Push(registrytest.Image{Repo: "shop/web", Name: "image", Config: "two", Tags: []string{"v1"}})
		w.drop("one")
		slow := slowRemove{w.Store, make(chan struct{}), make(chan struct{})}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.collect(w.collector(slow))
		}()
		<-slow.began
		made := w.create(CreateOptions{between: func(step string) {
			if step == "blobs" {
				close(slow.goOn)
				<-ended
			}
		}})
		if w.stored(w.Paths["one"]) || made.Blobs != 1 {
			w.Errorf("bytes there: %v; the backup has %d blobs", w.stored(w.Paths["one"]), made.Blobs)
		}
		w.wantWhole(1)
	})
}

// TestHoldLost: a backup that lost its hold fails and is not listed, also when the loss is
// seen only at the end.
func TestHoldLost(t *testing.T) {
	each(t, func(w *world) {
		w.Blob("shop/web", "one")
		for _, at := range []string{"blobs", "manifest"} {
			_, err := Create(w.Context(), w.server, w.openTarget(), CreateOptions{between: func(step string) {
				if step == at {
					w.Exec(`UPDATE backups SET hold_until = 1`)
				}
			}})
			if !errors.Is(err, errHold) {
				w.Errorf("lost at %s: %v", at, err)
			}
			if list, err := w.openTarget().List(w.Context()); err != nil || len(list) != 0 {
				w.Errorf("lost at %s: %d backups: %v", at, len(list), err)
			}
		}
		w.create(CreateOptions{})
		w.wantWhole(1)
	})
}

// TestHoldIsKept: the lease is extended while the backup works.
func TestHoldIsKept(t *testing.T) {
	each(t, func(w *world) {
		w.Blob("shop/web", "one")
		const lease = 4 * time.Second
		until := func() (n int) { return w.Count(`SELECT max(hold_until) FROM backups`) }
		w.create(CreateOptions{lease: lease, between: func(step string) {
			if step != "blobs" {
				return
			}
			first := until()
			dbtest.Await(w, "the lease is extended", func() bool { return until() != first })
		}})
	})
}

// TestHoldExpires: the hold of a process that died ends with its lease. Then bytes are
// unlinked again, and the next backup starts.
func TestHoldExpires(t *testing.T) {
	each(t, func(w *world) {
		if _, err := takeHold(w.Context(), w.DB, "dead", "somewhere", time.Hour, nil); err != nil {
			w.Fatal(err)
		}
		w.Blob("shop/web", "one")
		w.drop("one")
		w.collect(w.collector(w.Store))
		if !w.stored(w.Paths["one"]) {
			w.Error("the bytes were unlinked during the lease")
		}
		if _, err := Create(w.Context(), w.server, w.openTarget(), CreateOptions{}); !errors.Is(err, ErrBusy) {
			w.Errorf("a second backup of the database: %v", err)
		}
		w.Exec(`UPDATE backups SET hold_until = 1`)
		w.Exec(`UPDATE gc_unlink_queue SET review_after = 0`)
		w.collect(w.collector(w.Store))
		if w.stored(w.Paths["one"]) {
			w.Error("the bytes stay after the lease")
		}
		w.create(CreateOptions{})
	})
}

// TestTargetLock: one process writes to a target at a time.
func TestTargetLock(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sqldb.SQLite)
	other := newWorld(t, sqldb.SQLite)
	other.target = w.target
	w.create(CreateOptions{between: func(step string) {
		if step != "blobs" {
			return
		}
		if _, err := Create(t.Context(), other.server, other.openTarget(), CreateOptions{}); !errors.Is(err, ErrBusy) {
			t.Errorf("a second backup: %v", err)
		}
		if _, err := w.openTarget().Prune(t.Context(), 1); !errors.Is(err, ErrBusy) {
			t.Errorf("a prune: %v", err)
		}
	}})
	other.create(CreateOptions{})
	w.wantWhole(2)
}

// TestCrash: whatever step the process dies in, the target lists whole backups only, and
// the next backup removes the rests.
func TestCrash(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sqldb.SQLite)
	w.Blob("shop/web", "one")
	w.create(CreateOptions{})
	w.Blob("shop/web", "two")
	whole, crashed := w.target, map[string]string{}
	w.create(CreateOptions{between: func(step string) {
		crashed[step] = filepath.Join(t.TempDir(), "target")
		if err := os.CopyFS(crashed[step], os.DirFS(whole)); err != nil {
			t.Error(err)
		}
	}})
	for step, want := range map[string]int{"database": 1, "blobs": 1, "manifest": 1, "sweep": 2} {
		w.target = crashed[step]
		// A part of a blob, and of a copied database.
		if step == "blobs" {
			path := filepath.Join(w.target, blobstore.PathOf(w.DigestOf("two")))
			if err := errors.Join(os.WriteFile(path, []byte("tw"), 0o600), os.Mkdir(filepath.Join(w.target, stagingPrefix+"dead"), 0o700)); err != nil {
				t.Fatal(err)
			}
		}
		if list, err := w.openTarget().List(t.Context()); err != nil || len(list) != want {
			t.Errorf("after a crash at %s there are %d backups: %v", step, len(list), err)
		}
		w.create(CreateOptions{})
		w.wantWhole(want + 1)
	}
}

// TestFailureLeavesNothing: a backup that fails removes its files.
func TestFailureLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sqldb.SQLite)
	w.Blob("shop/web", "one")
	if err := w.Store.Remove(t.Context(), w.Paths["one"]); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(t.Context(), w.server, w.openTarget(), CreateOptions{}); !errors.Is(err, blobstore.ErrNotFound) {
		t.Fatalf("a backup without the bytes of a blob: %v", err)
	}
	w.wantWhole(0)
	if n := w.Count(`SELECT count(*) FROM backup_holds`); n != 0 {
		t.Error("the hold stays")
	}
}
