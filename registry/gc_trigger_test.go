package registry

import (
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// One test per trigger and event. No collector runs here: the database itself
// fills the queues. 1440m is a day.

// claimAll makes every review due and claimed, so that a change by a trigger is
// visible.
func (w *gcWorld) claimAll() {
	w.Helper()
	for _, table := range []string{"gc_blob_review_queue", "gc_manifest_review_queue", "gc_unlink_queue"} {
		w.exec(`UPDATE ` + table + ` SET review_after = 0, event = '-', claim_token = 'x', claim_until = 0, review_count = 3, last_error = 'e'`)
	}
}

// clear empties the queues.
func (w *gcWorld) clear() {
	w.Helper()
	for _, table := range []string{"gc_blob_review_queue", "gc_manifest_review_queue", "gc_unlink_queue"} {
		w.exec(`DELETE FROM ` + table)
	}
}

func TestGCTrackBlobUploads(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		w.blob("r", "a")
		w.wantBlobQueue("a blob_upload 1440m")
		first := w.paths["a"]
		w.claimAll()
		w.blob("r", "a") // the same content again: postponed, and no longer claimed
		w.wantBlobQueue("a blob_upload 1440m")
		if n := w.count(`SELECT review_count FROM gc_blob_review_queue`); n != 3 {
			t.Errorf("the failures were forgotten: %d", n)
		}
		if got := w.raw(`SELECT path FROM blobs`); got != first {
			t.Errorf("the row has another path: %s", got)
		}
		w.wantUnlinkQueue("") // the API queues the bytes of the second upload
		w.exec(`UPDATE gc_blob_review_queue SET review_after = $1`, time.Now().Add(48*time.Hour).UnixMilli())
		w.blob("r", "a")
		w.wantBlobQueue("a blob_upload 2880m") // the later time wins
	})
}

// TestGCTrackPromises: an existence check and a mount write the row.
func TestGCTrackPromises(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		w.push(image{repo: "r", name: "m", layers: []string{"a"}})
		w.claimAll()
		w.exec(keepBlob, w.digestOf("a"), "r")
		w.wantBlobQueue("a blob_upload 1440m")
		w.exec(keepManifest, w.count(`SELECT id FROM manifests`))
		w.wantManifestQueue("r@m manifest_upload 1440m")
	})
}

func TestGCTrackConfigurationBlobs(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		w.push(image{repo: "r", name: "with", config: "c"})
		w.push(image{repo: "r", name: "without"})
		w.push(image{repo: "s", name: "with", config: "c"})
		statement := `SELECT CAST(g.repository_id AS text) || '@' || m.digest || ' ' || b.digest FROM gc_blobs_configurations g JOIN manifests m ON m.id = g.manifest_id JOIN blobs b ON b.id = g.blob_id`
		w.wantLines("configurations", "r@with c; s@with c", statement)
		w.deleteManifest("r", "with")
		w.wantLines("configurations", "s@with c", statement)
	})
}

func TestGCTrackLayerBlobs(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		w.push(image{repo: "r", name: "m", layers: []string{"a", "b"}})
		w.push(image{repo: "s", name: "m", layers: []string{"b"}})
		statement := `SELECT CAST(g.repository_id AS text) || '@' || b.digest FROM gc_blobs_layers g JOIN layers l ON l.id = g.layer_id AND l.blob_id = g.blob_id JOIN blobs b ON b.id = g.blob_id`
		w.wantLines("layers", "r@a; r@b; s@b", statement)
		w.deleteManifest("r", "m")
		w.wantLines("layers", "s@b", statement)
		if n := w.count(`SELECT count(*) FROM gc_blobs_layers`); n != 1 {
			t.Errorf("%d rows", n)
		}
	})
}

// TestGCTrackTogether: on SQLite the blobs of one manifest are reviewed at the
// same time, those of another manifest at another time.
func TestGCTrackTogether(t *testing.T) {
	w := newGCWorld(t, dbtest.OpenDB(t, sqldb.SQLite), Options{})
	for _, name := range []string{"m", "n"} {
		w.push(image{repo: "r", name: name, config: "config of " + name, layers: []string{name + "1", name + "2", name + "3"}})
	}
	w.exec(`DELETE FROM gc_blob_review_queue`)
	w.exec(`DELETE FROM manifests`)
	if blobs, times := w.count(`SELECT count(*) FROM gc_blob_review_queue`), w.count(`SELECT count(DISTINCT review_after) FROM gc_blob_review_queue`); blobs != 8 || times != 2 {
		t.Errorf("%d blobs at %d times", blobs, times)
	}
}

// TestGCTrackWithoutRow: an event without a row in the delays has the default: a
// day, and an hour for existence_check. SQLite refuses to delete such a row,
// because its triggers would track nothing.
func TestGCTrackWithoutRow(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		remove := func(event string) error {
			return w.try(func(b *sqldb.Batch) { b.Exec(`DELETE FROM gc_review_after_defaults WHERE event = $1`, event) })
		}
		if w.db.Engine() == sqldb.SQLite {
			if err := remove(EventManifestUpload); err == nil || !strings.Contains(err.Error(), "an event needs its row") {
				t.Errorf("delete a row: %v", err)
			}
			if err := w.try(func(b *sqldb.Batch) { b.Exec(`UPDATE gc_review_after_defaults SET event = 'x' || event`) }); err == nil {
				t.Error("rows were renamed")
			}
			w.push(image{repo: "r", name: "m", layers: []string{"a"}})
			w.wantManifestQueue("r@m manifest_upload 1440m")
			w.wantBlobQueue("a blob_upload 1440m")
			return
		}
		w.exec(`UPDATE gc_review_after_defaults SET value = 0`)
		for _, event := range []string{EventManifestUpload, EventBlobUpload} {
			if err := remove(event); err != nil {
				t.Fatal(err)
			}
		}
		w.push(image{repo: "r", name: "m", layers: []string{"a"}})
		w.wantManifestQueue("r@m manifest_upload 1440m")
		w.wantBlobQueue("a blob_upload 1440m")

		w.clear()
		w.exec(`UPDATE gc_review_after_defaults SET value = 0`)
		if err := remove(EventExistenceCheck); err != nil {
			t.Fatal(err)
		}
		w.deleteManifest("r", "m") // would be at once without the promise
		w.wantBlobQueue("a layer_delete 60m")
	})
}

func TestGCTrackManifestUploads(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		id := w.push(image{repo: "r", name: "m"})
		w.wantManifestQueue("r@m manifest_upload 1440m")
		if n := w.count(`SELECT manifest_id FROM gc_manifest_review_queue WHERE repository_id = $1 AND top_level_namespace_id = 1`, w.repos["r"]); int64(n) != id {
			t.Errorf("queued manifest %d, not %d", n, id)
		}
		w.claimAll()
		w.push(image{repo: "r", name: "m"})
		w.wantManifestQueue("r@m manifest_upload 1440m")
	})
}

func TestGCTrackDeletedManifests(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		w.push(image{repo: "r", name: "m", config: "c"})
		w.push(image{repo: "r", name: "n"})
		w.clear()
		w.deleteManifest("r", "n")
		w.wantBlobQueue("") // it had no config
		w.deleteManifest("r", "m")
		w.wantBlobQueue("c manifest_delete 1440m")
		w.push(image{repo: "r", name: "m", config: "c"})
		w.claimAll()
		w.deleteManifest("r", "m")
		w.wantBlobQueue("c manifest_delete 1440m")
	})
}

func TestGCTrackDeletedLayers(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		w.push(image{repo: "r", name: "m", layers: []string{"a", "b"}})
		w.push(image{repo: "r", name: "n", layers: []string{"b"}})
		w.claimAll()
		w.deleteManifest("r", "m")
		w.wantBlobQueue("a layer_delete 1440m; b layer_delete 1440m") // b is in use: the review will find that
	})
}

func TestGCTrackDeletedManifestLists(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		w.push(image{repo: "r", name: "a"})
		w.push(image{repo: "r", name: "b"})
		w.push(image{repo: "r", name: "list", children: []string{"a", "b"}})
		w.exec(`DELETE FROM gc_manifest_review_queue WHERE manifest LIKE '%' || $1`, w.digestOf("a"))
		w.claimAll()
		w.deleteManifest("r", "list")
		w.wantManifestQueue("r@a manifest_list_delete 1440m; r@b manifest_list_delete 1440m; r@list - due claimed")
	})
}

func TestGCTrackDeletedTags(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		w.push(image{repo: "r", name: "m", tags: []string{"1", "2"}})
		w.claimAll()
		w.untag("r", "1")
		w.wantManifestQueue("r@m tag_delete 1440m")
		w.clear()
		w.deleteManifest("r", "m") // its last tag is deleted with it, and there is nothing to review
		w.wantManifestQueue("")
	})
}

func TestGCTrackSwitchedTags(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		w.push(image{repo: "r", name: "old", tags: []string{"latest"}})
		w.clear()
		w.push(image{repo: "r", name: "old", tags: []string{"latest"}})
		w.wantManifestQueue("r@old manifest_upload 1440m") // the same manifest is not a switch
		w.claimAll()
		w.push(image{repo: "r", name: "new", tags: []string{"latest"}})
		w.wantManifestQueue("r@new manifest_upload 1440m; r@old tag_switch 1440m")
	})
}

func TestGCTrackDeletedSubjects(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		signed := "sha256-" + w.digestOf("m")[len("sha256:"):]
		w.push(image{repo: "r", name: "m", tags: []string{"latest"}})
		w.push(image{repo: "r", name: "sbom", subject: "m"})
		w.push(image{repo: "r", name: "other", subject: "elsewhere"})
		w.push(image{repo: "s", name: "sbom", subject: "m"})
		w.push(image{repo: "r", name: "sig", tags: []string{signed + ".sig"}})
		w.push(image{repo: "r", name: "att", tags: []string{signed + ".att", "keep"}})
		w.push(image{repo: "s", name: "sig", tags: []string{signed + ".sig"}}) // signatures in another repository
		w.push(image{repo: "r", name: "index", tags: []string{signed}})        // not cosign's
		w.clear()
		w.deleteManifest("r", "m")
		w.wantManifestQueue("r@att tag_delete 1440m; r@sbom subject_delete 1440m; r@sig tag_delete 1440m")
		w.wantLines("tags", "r@keep; r@"+signed+"; s@"+signed+".sig", `SELECT CAST(repository_id AS text) || '@' || name FROM tags`)

		w.with(Options{KeepSignatures: true})
		w.clear()
		w.push(image{repo: "r", name: "m", tags: []string{"latest"}})
		w.push(image{repo: "r", name: "sig", tags: []string{signed + ".sig"}})
		w.clear()
		w.deleteManifest("r", "m")
		w.wantManifestQueue("r@sbom subject_delete 1440m")
	})
}

func TestGCTrackDeletedBlobs(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		w.blob("r", "a")
		w.exec(`DELETE FROM blobs`)
		w.wantUnlinkQueue("bytes-of-a blob_delete 2m") // one minute and the jitter
		if n := w.count(`SELECT size FROM gc_unlink_queue`); n != 1 {
			t.Errorf("size %d", n)
		}
	})
}

func TestGCTrackMovedBlobs(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		w.blob("r", "a")
		w.exec(`UPDATE blobs SET path = $1`, w.bytes("elsewhere"))
		w.wantUnlinkQueue("bytes-of-a blob_delete 2m")
	})
}

// upload begins an upload with as many bytes as its name.
func (w *gcWorld) upload(repo, name string, at time.Time) {
	w.Helper()
	id := w.repo(repo)
	w.paths[name] = w.bytes(name)
	w.exec(`INSERT INTO blob_uploads (id, repository_id, path, algorithm, size, created_at, updated_at) VALUES ($1, $2, $3, 'sha256', $4, $5, $5)`,
		name, id, w.paths[name], len(name), at.UnixMilli())
}

func TestGCTrackDeletedUploads(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		w.upload("r", "cancelled", time.Now())
		w.exec(`DELETE FROM blob_uploads`)
		w.wantUnlinkQueue("bytes-of-cancelled upload_delete 2m")
		w.clear()
		w.upload("r", "finished", time.Now())
		w.transact(func(b *sqldb.Batch) {
			b.Exec(insertBlob, w.digestOf("finished"), w.paths["finished"], 8, 0, false)
			b.Exec(`DELETE FROM blob_uploads`)
		})
		w.wantUnlinkQueue("")
		w.upload("r", "second", time.Now())
		w.transact(func(b *sqldb.Batch) { // the same content again: the old row stays, the new bytes are queued
			b.Exec(insertBlob, w.digestOf("finished"), w.paths["second"], 8, 0, false)
			b.Exec(`DELETE FROM blob_uploads`)
		})
		w.wantUnlinkQueue("bytes-of-second upload_delete 2m")
	})
}

// TestGCRepositoryDeleted: all its content is deleted, and is tracked.
func TestGCRepositoryDeleted(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		w.push(image{repo: "r", name: "a", config: "c", layers: []string{"l"}, tags: []string{"1"}})
		w.push(image{repo: "r", name: "list", children: []string{"a"}, tags: []string{"2"}})
		w.push(image{repo: "s", name: "a", config: "c"})
		w.upload("r", "up", time.Now())
		w.clear()
		w.exec(`DELETE FROM repositories WHERE path = 'r'`)
		w.wantBlobQueue("c manifest_delete 1440m; l layer_delete 1440m")
		w.wantUnlinkQueue("bytes-of-up upload_delete 2m")
		w.drain()
		w.want("c; s@a")
	})
}
