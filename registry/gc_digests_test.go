package registry

import (
	"fmt"
	"testing"
	"time"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

const allFound = `SELECT digest FROM blobs_by_digest`

// TestOneBlobOfADigest: the database refuses a second blob of a digest, also
// without an index, and accepts one after the first was deleted.
func TestOneBlobOfADigest(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		const insert = `INSERT INTO blobs (digest, path, size, media_type_id, created_at) VALUES ($1, $2, 1, 1, 0)`
		w.exec(insert, w.digestOf("a"), "first")
		if err := w.try(func(b *sqldb.Batch) { b.Exec(insert, w.digestOf("a"), "second") }); err == nil {
			t.Error("there are two blobs of a digest")
		}
		w.exec(`DELETE FROM blobs`)
		w.exec(insert, w.digestOf("a"), "third")
		w.wantLines("paths", "third", `SELECT path FROM blobs_by_digest`)
	})
}

// TestDigestOfAnother: the id of a deleted blob may be reused. The old entries,
// in the digests and in the queue, do not find the new blob.
func TestDigestOfAnother(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		w.blob("r", "gone")
		w.exec(`DELETE FROM blobs`)
		w.blob("r", "other")
		if w.db.Engine() == sqldb.SQLite {
			w.wantLines("numbers", "1; 1", `SELECT CAST(blob_id AS text) FROM blob_digests`)
		}
		w.wantLines("blobs", "other", allFound)
		w.settle(25 * time.Hour)
		w.wantLines("blobs", "", allFound)
		w.wantQueue("gc_blob_review_queue", "digest", "")
	})
}

// TestReviewWithoutNumber: a review finds its blob by digest if the queue has no
// id, as in older rows, or the id of another blob.
func TestReviewWithoutNumber(t *testing.T) {
	for _, number := range []string{"NULL", "12345", "1"} {
		t.Run(number, func(t *testing.T) {
			w := newGCWorld(t, dbtest.OpenDB(t, sqldb.SQLite), Options{})
			w.push(image{repo: "r", name: "m", layers: []string{"used"}, tags: []string{"t"}})
			w.blob("r", "unused")
			w.exec(`UPDATE gc_blob_review_queue SET blob_id = ` + number)
			w.settle(25 * time.Hour)
			w.want("r@m:t; used")
		})
	}
}

// TestForgetDigests: the entries of deleted blobs are removed when there are
// enough of them, and the others stay.
func TestForgetDigests(t *testing.T) {
	w := newGCWorld(t, dbtest.OpenDB(t, sqldb.SQLite), Options{})
	w.transact(func(b *sqldb.Batch) { fillRows(sqldb.SQLite, b, "gone-", 1000, fillBlobs) }) // four for each
	w.transact(func(b *sqldb.Batch) { fillRows(sqldb.SQLite, b, "stays-", 500, fillBlobs) })
	forget := func(want int) {
		t.Helper()
		if n, err := w.c.ForgetDigests(t.Context()); n != want || err != nil {
			t.Errorf("forgot %d digests, not %d: %v", n, want, err)
		}
	}
	left := func(want int) {
		t.Helper()
		if n := w.count(`SELECT count(*) FROM blob_digests`); n != want {
			t.Errorf("there are %d digests, not %d", n, want)
		}
	}
	w.exec(`DELETE FROM blobs WHERE path LIKE 'gone-%' AND id % 4 = 0`) // 1,000 of 6,000 are not enough
	forget(0)
	left(6000)
	w.exec(`DELETE FROM blobs WHERE path LIKE 'gone-%'`)
	again := w.raw(`SELECT min(digest) FROM blob_digests d WHERE NOT EXISTS (SELECT 1 FROM blobs b WHERE b.id = d.blob_id)`)
	w.exec(insertBlobSQLite, again, "again", 1, 0, false)
	forget(3999)
	left(2001)
	if got := w.raw(`SELECT path FROM blobs_by_digest WHERE digest = '` + again + `'`); got != "again" {
		t.Errorf("what was pushed again is at %q", got)
	}
	if n := w.count(`SELECT count(*) FROM blobs_by_digest`); n != 2001 {
		t.Errorf("%d of 2001 blobs are found by their digest", n)
	}
}

// TestDigestPushedWhileForgotten: a digest is pushed again after a step has
// chosen its entry, and before the step removes it.
func TestDigestPushedWhileForgotten(t *testing.T) {
	w := newGCWorld(t, dbtest.OpenDB(t, sqldb.SQLite), Options{})
	w.blob("r", "again")
	w.blob("r", "gone")
	w.exec(`DELETE FROM blobs`)
	var until string
	if _, err := w.db.Row(t.Context(), digestStep, []any{"", digestsStep}, &until); err != nil {
		t.Fatal(err)
	}
	w.blob("r", "again")
	if n, err := w.c.removeSome(t.Context(), removeDigests, "", until); n != 1 || err != nil {
		t.Errorf("removed %d: %v", n, err)
	}
	w.wantLines("digests", "again", `SELECT digest FROM blob_digests`)
	w.wantLines("blobs", "again", allFound)
}

func TestWorthForgetting(t *testing.T) {
	for _, c := range []struct {
		entries, blobs int64
		want           bool
	}{
		{0, 0, false}, {999, 0, false}, {1000, 0, true},
		{1_000_000, 1_000_000, false}, {1_250_999, 1_000_000, false}, {1_251_000, 1_000_000, true},
	} {
		t.Run(fmt.Sprint(c.entries, "/", c.blobs), func(t *testing.T) {
			if got := worthForgetting(c.entries, c.blobs); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
