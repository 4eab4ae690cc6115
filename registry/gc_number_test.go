package registry

import (
	"testing"
	"time"

	"github.com/exeunt/exeunt/sqldb"
)

// TestOneBlobOfADigest: the database refuses a second blob of a digest, and
// accepts one after the first was deleted.
func TestOneBlobOfADigest(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		const insert = `INSERT INTO blobs (digest, path, size, media_type_id, created_at) VALUES ($1, $2, 1, 1, 0)`
		w.exec(insert, w.digestOf("a"), "first")
		if err := w.try(func(b *sqldb.Batch) { b.Exec(insert, w.digestOf("a"), "second") }); err == nil {
			t.Error("there are two blobs of a digest")
		}
		w.exec(`DELETE FROM blobs`)
		w.exec(insert, w.digestOf("a"), "third")
		w.wantLines("paths", "third", `SELECT path FROM blobs`)
	})
}

// TestReviewOfAnotherDigest: SQLite may reuse the id of a deleted blob. The queued
// review of the deleted blob does not find the new one.
func TestReviewOfAnotherDigest(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		const all = `SELECT digest FROM blobs`
		w.blob("r", "gone")
		w.exec(`DELETE FROM blobs`)
		w.blob("r", "other")
		w.wantLines("blobs", "other", all)
		w.settle(25 * time.Hour)
		w.wantLines("blobs", "", all)
		w.wantQueue("gc_blob_review_queue", "digest", "")
	})
}
