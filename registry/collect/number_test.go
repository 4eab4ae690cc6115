package collect

import (
	"testing"
	"time"

	"github.com/exeunt/exeunt/sqldb"
)

// TestOneBlobOfADigest: the database refuses a second blob of a digest, and
// accepts one after the first was deleted.
func TestOneBlobOfADigest(t *testing.T) {
	each(t, func(w *world) {
		const insert = `INSERT INTO blobs (digest, path, size, media_type_id, created_at) VALUES ($1, $2, 1, 1, 0)`
		w.Exec(insert, w.DigestOf("a"), "first")
		if err := w.Try(func(b *sqldb.Batch) { b.Exec(insert, w.DigestOf("a"), "second") }); err == nil {
			t.Error("there are two blobs of a digest")
		}
		w.Exec(`DELETE FROM blobs`)
		w.Exec(insert, w.DigestOf("a"), "third")
		w.WantLines("paths", "third", `SELECT path FROM blobs`)
	})
}

// TestReviewOfAnotherDigest: SQLite may reuse the id of a deleted blob. The queued
// review of the deleted blob does not find the new one.
func TestReviewOfAnotherDigest(t *testing.T) {
	each(t, func(w *world) {
		const all = `SELECT digest FROM blobs`
		w.Blob("r", "gone")
		w.Exec(`DELETE FROM blobs`)
		w.Blob("r", "other")
		w.WantLines("blobs", "other", all)
		w.settle(25 * time.Hour)
		w.WantLines("blobs", "", all)
		w.WantQueue("gc_blob_review_queue", "digest", "")
	})
}
