package collect

import (
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/registry/internal/statement"
	"github.com/exeunt/exeunt/sqldb"
)

// Blobs, race 1: an existence check of a blob that is about to be deleted.
func TestGCRaceBlobHead(t *testing.T) {
	t.Run("review first", func(t *testing.T) {
		w := raceWorld(t)
		w.Blob("r", "a")
		found := false
		var done <-chan error
		w.reviewBlobsStopped(afterVerify, func() {
			done = w.Begin(func() error {
				return w.Try(func(b *sqldb.Batch) {
					b.Query(func(row sqldb.Row) error { found = true; return row.Scan(new(string), new(int64)) }, statement.KeepBlob, w.DigestOf("a"), "r")
				})
			})
		})
		if err := <-done; err != nil || found {
			t.Errorf("promised a blob that is gone: %v, %v", found, err)
		}
		w.drain()
		w.Want("")
	})
	t.Run("check before the claim", func(t *testing.T) {
		w := raceWorld(t)
		w.Blob("r", "a")
		commit := w.Open(func(tx *sqldb.Tx) error { return tx.Exec(t.Context(), statement.KeepBlob, w.DigestOf("a"), "r") })
		if r, err := w.c.blobRows.RunOne(t.Context()); err != nil || r.Claimed != 0 {
			t.Errorf("claimed a blob that is being promised: %+v, %v", r, err)
		}
		commit()
		w.WantBlobQueue("a blob_upload 1440m")
		w.Want("a")
	})
	t.Run("check before the blob is taken", func(t *testing.T) {
		w := raceWorld(t)
		w.Blob("r", "a")
		committed := make(chan struct{})
		r := w.reviewBlobsStopped(afterHold, func() {
			commit := w.Open(func(tx *sqldb.Tx) error { return tx.Exec(t.Context(), statement.KeepBlob, w.DigestOf("a"), "r") })
			go func() { // the review skips the blob, and waits only to settle
				defer close(committed)
				w.Waiting()
				commit()
			}()
		})
		if <-committed; r.Left != 1 {
			t.Errorf("the review was settled: %+v", r)
		}
		w.WantBlobQueue("a blob_upload 1440m")
		w.Want("a")
	})
	t.Run("check after the claim", func(t *testing.T) {
		w := raceWorld(t)
		w.Blob("r", "a")
		r := w.reviewBlobsStopped(afterHold, func() {
			w.Exec(statement.KeepBlob, w.DigestOf("a"), "r")
			w.Exec(`UPDATE gc_blob_review_queue SET review_after = $1`, w.clock.Now().Add(24*time.Hour).UnixMilli())
		})
		if r.Left != 1 {
			t.Errorf("the review was settled: %+v", r)
		}
		w.Want("a")
	})
}

// Blobs, race 2: a manifest is pushed that uses a blob which is about to be
// deleted.
func TestGCRaceBlobUsed(t *testing.T) {
	m := image{Repo: "r", Name: "m", Layers: []string{"a"}, Tags: []string{"1"}}
	t.Run("review first", func(t *testing.T) {
		w := raceWorld(t)
		w.Blob("r", "a")
		w.DigestOf("m")
		var done <-chan error
		w.reviewBlobsStopped(afterVerify, func() {
			done = w.Begin(func() error { var id int64; return w.TryPush(m, &id) })
		})
		if err := <-done; err == nil {
			t.Error("pushed a manifest whose blob is gone")
		}
		w.Want("")
	})
	t.Run("push first", func(t *testing.T) {
		w := raceWorld(t)
		w.Blob("r", "a")
		commit := w.Open(func(tx *sqldb.Tx) error { var id int64; return w.SendPush(tx, m, &id) })
		if r := w.reviewBlobsStopped(afterVerify, func() {}); r.Postponed != 1 {
			t.Errorf("the review did not pass over a blob in use: %+v", r)
		}
		commit()
		w.drain()
		w.Want("a; r@m:1")
	})
}

// Blobs, race 3: the last manifest that uses a blob is deleted after the review
// has seen it.
func TestGCRaceBlobReleased(t *testing.T) {
	w := raceWorld(t)
	w.Push(image{Repo: "r", Name: "m", Layers: []string{"a"}})
	r := w.reviewBlobsStopped(afterVerify, func() { w.DeleteManifest("r", "m") })
	if r.Left != 1 {
		t.Errorf("the review was settled: %+v", r)
	}
	w.WantBlobQueue("a layer_delete 1440m")
	w.drain()
	w.Want("")
}

// Blobs, race 4: a blob is removed from a repository while it is reviewed.
func TestGCRaceBlobUnlinked(t *testing.T) {
	w := raceWorld(t)
	w.Blob("r", "a")
	var done <-chan error
	r := w.reviewBlobsStopped(afterDelete, func() {
		done = w.Begin(func() error {
			return w.Try(func(b *sqldb.Batch) { b.Exec(statement.UnlinkBlob, "r", w.DigestOf("a")) })
		})
	})
	if err := <-done; err != nil || r.Done != 1 {
		t.Errorf("unlink: %v; review: %+v", err, r)
	}
	w.drain()
	w.Want("")
}

// Blobs, race 5: the same content is uploaded while its row is being deleted. It
// gets its own row and bytes.
func TestGCRaceBlobPushedAgain(t *testing.T) {
	for name, at := range map[string]int{"before delete": afterVerify, "after delete": afterDelete} {
		t.Run(name, func(t *testing.T) {
			w := raceWorld(t)
			w.Blob("r", "a")
			first, second := w.Paths["a"], w.Bytes("a")
			var done <-chan error
			r := w.reviewBlobsStopped(at, func() {
				done = w.Begin(func() error {
					return w.Try(func(b *sqldb.Batch) {
						b.Exec(statement.InsertBlob, w.DigestOf("a"), second, 1, 0, false)
						b.Exec(statement.LinkBlob, 1, w.Repos["r"], w.DigestOf("a"), 0)
					})
				})
			})
			if err := <-done; err != nil || r.Acted != 1 {
				t.Fatalf("push: %v; review: %+v", err, r)
			}
			w.WantBlobQueue("a blob_upload 1440m")
			w.WantUnlinkQueue("bytes-of-a blob_delete 1m")
			if _, err := w.c.unlinks.RunOne(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(w.Strings(`SELECT path FROM blobs`), " "); got != second || got == first {
				t.Errorf("the row names %s", got)
			}
			w.Check()
		})
	}
}
