package schema_test

import (
	"fmt"
	"testing"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// queues are the tables of the review queues, and their keys.
var queues = map[string]string{
	"gc_object_reviews": "uid", "gc_admission_reviews": "uid", "gc_repository_review_queue": "uid", "gc_manifest_review_queue": "manifest",
	"gc_blob_review_queue": "digest", "gc_unlink_queue": "path", "mesh_node_reviews": "uid", "provisioned_resource_reviews": "id",
	"provisioned_resource_outbox_reviews": "resource_id", "quota_reviews": "uid",
}

// TestTraceOfRows: a row that a traced transaction enqueues, or enqueues again, has its
// trace: that of its object, or of the transaction. Other transactions change no trace.
func TestTraceOfRows(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		for table, key := range queues {
			enqueue := fmt.Sprintf(`
INSERT INTO %s (%s, review_after, review_count, event, created_at) VALUES ($1, 0, 0, 'test', 0)
ON CONFLICT (%s) DO UPDATE SET event = excluded.event`, table, key, key)
			transact(t, db, func(b *sqldb.Batch) { b.Exec(enqueue, "again") })
			transact(t, db, func(b *sqldb.Batch) {
				b.MarkTraces(db.Engine(), map[string]string{"own": "a", "": "b"})
				for _, subject := range []string{"own", "other", "again"} {
					b.Exec(enqueue, subject)
				}
				b.UnmarkTraces(db.Engine())
				b.Exec(enqueue, "later")
			})
			transact(t, db, func(b *sqldb.Batch) { b.Exec(enqueue, "own"); b.Exec(enqueue, "new") })
			for subject, want := range map[string]string{"own": "a", "other": "b", "again": "b", "later": "", "new": ""} {
				var got string
				if found, err := db.Row(t.Context(), fmt.Sprintf(`SELECT coalesce(traceparent, '') FROM %s WHERE %s = $1`, table, key), []any{subject}, &got); err != nil || !found || got != want {
					t.Errorf("%s %s has the trace %q, want %q: %v %v", table, subject, got, want, found, err)
				}
			}
		}
	})
}

func transact(t *testing.T, db *sqldb.DB, add func(*sqldb.Batch)) {
	t.Helper()
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() // does nothing after a commit
	var b sqldb.Batch
	add(&b)
	if err := tx.Send(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}
