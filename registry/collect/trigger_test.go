package collect

import (
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/registry/internal/statement"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// One test per trigger and event. No collector runs here: the database itself
// fills the queues. 1440m is a day.

// claimAll makes every review due and claimed, so that a change by a trigger is
// visible.
func (w *world) claimAll() {
	w.Helper()
	for _, table := range []string{"gc_blob_review_queue", "gc_manifest_review_queue", "gc_unlink_queue"} {
		w.Exec(`UPDATE ` + table + ` SET review_after = 0, event = '-', claim_token = 'x', claim_until = 0, review_count = 3, last_error = 'e'`)
	}
}

// clear empties the queues.
func (w *world) clear() {
	w.Helper()
	for _, table := range []string{"gc_blob_review_queue", "gc_manifest_review_queue", "gc_unlink_queue"} {
		w.Exec(`DELETE FROM ` + table)
	}
}

func TestGCTrackBlobUploads(t *testing.T) {
	each(t, func(w *world) {
		w.Blob("r", "a")
		w.WantBlobQueue("a blob_upload 1440m")
		first := w.Paths["a"]
		w.claimAll()
		w.Blob("r", "a") // the same content again: postponed, and no longer claimed
		w.WantBlobQueue("a blob_upload 1440m")
		if n := w.Count(`SELECT review_count FROM gc_blob_review_queue`); n != 3 {
			t.Errorf("the failures were forgotten: %d", n)
		}
		if got := strings.Join(w.Strings(`SELECT path FROM blobs`), " "); got != first {
			t.Errorf("the row has another path: %s", got)
		}
		w.WantUnlinkQueue("") // the API queues the bytes of the second upload
		w.Exec(`UPDATE gc_blob_review_queue SET review_after = $1`, time.Now().Add(48*time.Hour).UnixMilli())
		w.Blob("r", "a")
		w.WantBlobQueue("a blob_upload 2880m") // the later time wins
	})
}

// TestGCTrackPromises: an existence check and a mount write the row.
func TestGCTrackPromises(t *testing.T) {
	each(t, func(w *world) {
		w.Push(image{Repo: "r", Name: "m", Layers: []string{"a"}})
		w.claimAll()
		w.Exec(statement.KeepBlob, w.DigestOf("a"), "r")
		w.WantBlobQueue("a blob_upload 1440m")
		w.Exec(statement.KeepManifest, w.Count(`SELECT id FROM manifests`))
		w.WantManifestQueue("r@m manifest_upload 1440m")
	})
}

func TestGCTrackConfigurationBlobs(t *testing.T) {
	each(t, func(w *world) {
		w.Push(image{Repo: "r", Name: "with", Config: "c"})
		w.Push(image{Repo: "r", Name: "without"})
		w.Push(image{Repo: "s", Name: "with", Config: "c"})
		statement := `SELECT CAST(g.repository_id AS text) || '@' || m.digest || ' ' || b.digest FROM gc_blobs_configurations g JOIN manifests m ON m.id = g.manifest_id JOIN blobs b ON b.id = g.blob_id`
		w.WantLines("configurations", "r@with c; s@with c", statement)
		w.DeleteManifest("r", "with")
		w.WantLines("configurations", "s@with c", statement)
	})
}

func TestGCTrackLayerBlobs(t *testing.T) {
	each(t, func(w *world) {
		w.Push(image{Repo: "r", Name: "m", Layers: []string{"a", "b"}})
		w.Push(image{Repo: "s", Name: "m", Layers: []string{"b"}})
		statement := `SELECT CAST(g.repository_id AS text) || '@' || b.digest FROM gc_blobs_layers g JOIN layers l ON l.id = g.layer_id AND l.blob_id = g.blob_id JOIN blobs b ON b.id = g.blob_id`
		w.WantLines("layers", "r@a; r@b; s@b", statement)
		w.DeleteManifest("r", "m")
		w.WantLines("layers", "s@b", statement)
		if n := w.Count(`SELECT count(*) FROM gc_blobs_layers`); n != 1 {
			t.Errorf("%d rows", n)
		}
	})
}

// TestGCTrackTogether: on SQLite the blobs of one manifest are reviewed at the
// same time, those of another manifest at another time.
func TestGCTrackTogether(t *testing.T) {
	w := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite), Options{})
	for _, name := range []string{"m", "n"} {
		w.Push(image{Repo: "r", Name: name, Config: "config of " + name, Layers: []string{name + "1", name + "2", name + "3"}})
	}
	w.Exec(`DELETE FROM gc_blob_review_queue`)
	w.Exec(`DELETE FROM manifests`)
	if blobs, times := w.Count(`SELECT count(*) FROM gc_blob_review_queue`), w.Count(`SELECT count(DISTINCT review_after) FROM gc_blob_review_queue`); blobs != 8 || times != 2 {
		t.Errorf("%d blobs at %d times", blobs, times)
	}
}

// TestGCTrackWithoutRow: an event without a row in the delays has the default: a
// day, and an hour for existence_check. SQLite refuses to delete such a row,
// because its triggers would track nothing.
func TestGCTrackWithoutRow(t *testing.T) {
	each(t, func(w *world) {
		remove := func(event string) error {
			return w.Try(func(b *sqldb.Batch) { b.Exec(`DELETE FROM gc_review_after_defaults WHERE event = $1`, event) })
		}
		if w.DB.Engine() == sqldb.SQLite {
			if err := remove(EventManifestUpload); err == nil || !strings.Contains(err.Error(), "an event needs its row") {
				t.Errorf("delete a row: %v", err)
			}
			if err := w.Try(func(b *sqldb.Batch) { b.Exec(`UPDATE gc_review_after_defaults SET event = 'x' || event`) }); err == nil {
				t.Error("rows were renamed")
			}
			w.Push(image{Repo: "r", Name: "m", Layers: []string{"a"}})
			w.WantManifestQueue("r@m manifest_upload 1440m")
			w.WantBlobQueue("a blob_upload 1440m")
			return
		}
		w.Exec(`UPDATE gc_review_after_defaults SET value = 0`)
		for _, event := range []string{EventManifestUpload, EventBlobUpload} {
			if err := remove(event); err != nil {
				t.Fatal(err)
			}
		}
		w.Push(image{Repo: "r", Name: "m", Layers: []string{"a"}})
		w.WantManifestQueue("r@m manifest_upload 1440m")
		w.WantBlobQueue("a blob_upload 1440m")

		w.clear()
		w.Exec(`UPDATE gc_review_after_defaults SET value = 0`)
		if err := remove(EventExistenceCheck); err != nil {
			t.Fatal(err)
		}
		w.DeleteManifest("r", "m") // would be at once without the promise
		w.WantBlobQueue("a layer_delete 60m")
	})
}

func TestGCTrackManifestUploads(t *testing.T) {
	each(t, func(w *world) {
		id := w.Push(image{Repo: "r", Name: "m"})
		w.WantManifestQueue("r@m manifest_upload 1440m")
		if n := w.Count(`SELECT manifest_id FROM gc_manifest_review_queue WHERE repository_id = $1 AND top_level_namespace_id = 1`, w.Repos["r"]); int64(n) != id {
			t.Errorf("queued manifest %d, not %d", n, id)
		}
		w.claimAll()
		w.Push(image{Repo: "r", Name: "m"})
		w.WantManifestQueue("r@m manifest_upload 1440m")
	})
}

func TestGCTrackDeletedManifests(t *testing.T) {
	each(t, func(w *world) {
		w.Push(image{Repo: "r", Name: "m", Config: "c"})
		w.Push(image{Repo: "r", Name: "n"})
		w.clear()
		w.DeleteManifest("r", "n")
		w.WantBlobQueue("") // it had no config
		w.DeleteManifest("r", "m")
		w.WantBlobQueue("c manifest_delete 1440m")
		w.Push(image{Repo: "r", Name: "m", Config: "c"})
		w.claimAll()
		w.DeleteManifest("r", "m")
		w.WantBlobQueue("c manifest_delete 1440m")
	})
}

func TestGCTrackDeletedLayers(t *testing.T) {
	each(t, func(w *world) {
		w.Push(image{Repo: "r", Name: "m", Layers: []string{"a", "b"}})
		w.Push(image{Repo: "r", Name: "n", Layers: []string{"b"}})
		w.claimAll()
		w.DeleteManifest("r", "m")
		w.WantBlobQueue("a layer_delete 1440m; b layer_delete 1440m") // b is in use: the review will find that
	})
}

func TestGCTrackDeletedManifestLists(t *testing.T) {
	each(t, func(w *world) {
		w.Push(image{Repo: "r", Name: "a"})
		w.Push(image{Repo: "r", Name: "b"})
		w.Push(image{Repo: "r", Name: "list", Children: []string{"a", "b"}})
		w.Exec(`DELETE FROM gc_manifest_review_queue WHERE manifest LIKE '%' || $1`, w.DigestOf("a"))
		w.claimAll()
		w.DeleteManifest("r", "list")
		w.WantManifestQueue("r@a manifest_list_delete 1440m; r@b manifest_list_delete 1440m; r@list - due claimed")
	})
}

func TestGCTrackDeletedTags(t *testing.T) {
	each(t, func(w *world) {
		w.Push(image{Repo: "r", Name: "m", Tags: []string{"1", "2"}})
		w.claimAll()
		w.Untag("r", "1")
		w.WantManifestQueue("r@m tag_delete 1440m")
		w.clear()
		w.DeleteManifest("r", "m") // its last tag is deleted with it, and there is nothing to review
		w.WantManifestQueue("")
	})
}

func TestGCTrackSwitchedTags(t *testing.T) {
	each(t, func(w *world) {
		w.Push(image{Repo: "r", Name: "old", Tags: []string{"latest"}})
		w.clear()
		w.Push(image{Repo: "r", Name: "old", Tags: []string{"latest"}})
		w.WantManifestQueue("r@old manifest_upload 1440m") // the same manifest is not a switch
		w.claimAll()
		w.Push(image{Repo: "r", Name: "new", Tags: []string{"latest"}})
		w.WantManifestQueue("r@new manifest_upload 1440m; r@old tag_switch 1440m")
	})
}

func TestGCTrackDeletedSubjects(t *testing.T) {
	each(t, func(w *world) {
		signed := "sha256-" + w.DigestOf("m")[len("sha256:"):]
		w.Push(image{Repo: "r", Name: "m", Tags: []string{"latest"}})
		w.Push(image{Repo: "r", Name: "sbom", Subject: "m"})
		w.Push(image{Repo: "r", Name: "other", Subject: "elsewhere"})
		w.Push(image{Repo: "s", Name: "sbom", Subject: "m"})
		w.Push(image{Repo: "r", Name: "sig", Tags: []string{signed + ".sig"}})
		w.Push(image{Repo: "r", Name: "att", Tags: []string{signed + ".att", "keep"}})
		w.Push(image{Repo: "s", Name: "sig", Tags: []string{signed + ".sig"}}) // signatures in another repository
		w.Push(image{Repo: "r", Name: "index", Tags: []string{signed}})        // not cosign's
		w.clear()
		w.DeleteManifest("r", "m")
		w.WantManifestQueue("r@att tag_delete 1440m; r@sbom subject_delete 1440m; r@sig tag_delete 1440m")
		w.WantLines("tags", "r@keep; r@"+signed+"; s@"+signed+".sig", `SELECT CAST(repository_id AS text) || '@' || name FROM tags`)

		w.with(Options{KeepSignatures: true})
		w.clear()
		w.Push(image{Repo: "r", Name: "m", Tags: []string{"latest"}})
		w.Push(image{Repo: "r", Name: "sig", Tags: []string{signed + ".sig"}})
		w.clear()
		w.DeleteManifest("r", "m")
		w.WantManifestQueue("r@sbom subject_delete 1440m")
	})
}

func TestGCTrackDeletedBlobs(t *testing.T) {
	each(t, func(w *world) {
		w.Blob("r", "a")
		w.Exec(`DELETE FROM blobs`)
		w.WantUnlinkQueue("bytes-of-a blob_delete 1m") // one minute and the jitter
		if n := w.Count(`SELECT size FROM gc_unlink_queue`); n != 1 {
			t.Errorf("size %d", n)
		}
	})
}

func TestGCTrackMovedBlobs(t *testing.T) {
	each(t, func(w *world) {
		w.Blob("r", "a")
		w.Exec(`UPDATE blobs SET path = $1`, w.Bytes("elsewhere"))
		w.WantUnlinkQueue("bytes-of-a blob_delete 1m")
	})
}

// upload begins an upload with as many bytes as its name.
func (w *world) upload(repo, name string, at time.Time) {
	w.Helper()
	id := w.Repo(repo)
	w.Paths[name] = w.Bytes(name)
	w.Exec(`INSERT INTO blob_uploads (id, repository_id, path, algorithm, size, created_at, updated_at) VALUES ($1, $2, $3, 'sha256', $4, $5, $5)`,
		name, id, w.Paths[name], len(name), at.UnixMilli())
}

func TestGCTrackDeletedUploads(t *testing.T) {
	each(t, func(w *world) {
		w.upload("r", "cancelled", time.Now())
		w.Exec(`DELETE FROM blob_uploads`)
		w.WantUnlinkQueue("bytes-of-cancelled upload_delete 1m")
		w.clear()
		w.upload("r", "finished", time.Now())
		w.Transact(func(b *sqldb.Batch) {
			b.Exec(statement.InsertBlob, w.DigestOf("finished"), w.Paths["finished"], 8, 0, false)
			b.Exec(`DELETE FROM blob_uploads`)
		})
		w.WantUnlinkQueue("")
		w.upload("r", "second", time.Now())
		w.Transact(func(b *sqldb.Batch) { // the same content again: the old row stays, the new bytes are queued
			b.Exec(statement.InsertBlob, w.DigestOf("finished"), w.Paths["second"], 8, 0, false)
			b.Exec(`DELETE FROM blob_uploads`)
		})
		w.WantUnlinkQueue("bytes-of-second upload_delete 1m")
	})
}

// TestGCRepositoryDeleted: all its content is deleted, and is tracked.
func TestGCRepositoryDeleted(t *testing.T) {
	each(t, func(w *world) {
		w.Push(image{Repo: "r", Name: "a", Config: "c", Layers: []string{"l"}, Tags: []string{"1"}})
		w.Push(image{Repo: "r", Name: "list", Children: []string{"a"}, Tags: []string{"2"}})
		w.Push(image{Repo: "s", Name: "a", Config: "c"})
		w.upload("r", "up", time.Now())
		w.clear()
		w.Exec(`DELETE FROM repositories WHERE path = 'r'`)
		w.WantBlobQueue("c manifest_delete 1440m; l layer_delete 1440m")
		w.WantUnlinkQueue("bytes-of-up upload_delete 1m")
		w.drain()
		w.Want("c; s@a")
	})
}
