package registry

import (
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/sqldb"
)

// A review handles a whole batch in each statement. The race of one row must not
// change the outcome of the others.

func pushPlain(w *gcWorld, names ...string) (ids map[string]int64) {
	w.Helper()
	ids = map[string]int64{}
	for _, name := range names {
		ids[name] = w.push(image{repo: "r", name: name})
	}
	return ids
}

func TestGCRaceBatchOfManifests(t *testing.T) {
	t.Run("one is being tagged", func(t *testing.T) {
		w := raceWorld(t)
		ids := pushPlain(w, "a", "b", "c")
		commit := w.open(func(tx *sqldb.Tx) error { return exec(t.Context(), tx, putTag, 1, w.repos["r"], "1", ids["b"], 0) })
		if r, err := w.c.manifests.RunOne(t.Context()); err != nil || r.Acted != 2 || r.Postponed != 1 {
			t.Errorf("%+v, %v", r, err)
		}
		commit()
		w.drain()
		w.want("r@b:1")
	})
	t.Run("one is gone and one was pushed again", func(t *testing.T) {
		w := raceWorld(t)
		pushPlain(w, "a", "b", "c")
		r := w.reviewManifestsStopped(afterHold, func() {
			w.deleteManifest("r", "a")
			w.exec(`UPDATE manifests SET media_type_id = media_type_id WHERE digest = $1`, w.digestOf("b"))
			w.exec(`UPDATE gc_manifest_review_queue SET review_after = $1 WHERE manifest LIKE '%' || $2`,
				w.now().Add(24*time.Hour).UnixMilli(), w.digestOf("b"))
		})
		if r.Acted != 1 || r.Done != 2 || r.Left != 1 {
			t.Errorf("%+v", r)
		}
		w.want("r@b")
	})
	t.Run("one loses its tag after it was seen", func(t *testing.T) {
		w := raceWorld(t)
		pushPlain(w, "a", "c")
		w.push(image{repo: "r", name: "b", tags: []string{"1"}})
		if r := w.reviewManifestsStopped(afterVerify, func() { w.untag("r", "1") }); r.Acted != 2 || r.Done != 2 || r.Left != 1 {
			t.Errorf("%+v", r)
		}
		w.want("r@b")
		w.wantManifestQueue("r@b tag_delete 1440m")
		w.drain()
		w.want("")
	})
	t.Run("one's subject is being deleted", func(t *testing.T) {
		w := raceWorld(t)
		ids := pushPlain(w, "a", "b")
		commit := w.open(func(tx *sqldb.Tx) error {
			return exec(t.Context(), tx, `DELETE FROM manifests WHERE id = $1`, ids["a"])
		})
		w.push(image{repo: "r", name: "of a", subject: "a"})
		w.push(image{repo: "r", name: "of b", subject: "b"})
		w.push(image{repo: "r", name: "of none", subject: "none"})
		w.exec(`DELETE FROM gc_manifest_review_queue WHERE manifest_id IN ($1, $2)`, ids["a"], ids["b"])
		if r, err := w.c.manifests.RunOne(t.Context()); err != nil || r.Acted != 1 || r.Postponed != 1 || r.Done != 2 {
			t.Errorf("%+v, %v", r, err)
		}
		commit()
		w.drain()
		w.want("r@b; r@of b")
	})
}

// TestGCBatchOfSigned: everything that loses its keeper by a batch is reviewed,
// and the signatures are removed with their images.
func TestGCBatchOfSigned(t *testing.T) {
	w := raceWorld(t)
	for _, name := range []string{"a", "b", "c"} {
		tag := strings.ReplaceAll(w.digestOf(name), ":", "-")
		w.push(image{repo: "r", name: name, config: "{}", layers: []string{"layer of " + name}})
		w.push(image{repo: "r", name: "signature of " + name, tags: []string{tag + ".sig", tag + ".att"}})
		w.push(image{repo: "r", name: "referrer of " + name, subject: name})
	}
	w.push(image{repo: "r", name: "other", tags: []string{"other.sig"}})
	w.drain()
	w.want("r@other:other.sig")
}

func TestGCRaceBatchOfBlobs(t *testing.T) {
	w := raceWorld(t)
	for _, name := range []string{"a", "b", "c", "d"} {
		w.blob("r", name)
	}
	commit := w.open(func(tx *sqldb.Tx) error {
		var id int64
		return w.sendPush(tx, image{repo: "r", name: "m", layers: []string{"b"}, tags: []string{"1"}}, &id)
	})
	r := w.reviewBlobsStopped(afterHold, func() {
		w.exec(`UPDATE gc_blob_review_queue SET review_after = $1 WHERE digest = $2`, w.now().Add(24*time.Hour).UnixMilli(), w.digestOf("c"))
		w.exec(`DELETE FROM blobs WHERE digest = $1`, w.digestOf("d"))
	})
	if r.Acted != 1 || r.Done != 2 || r.Postponed != 2 {
		t.Errorf("%+v", r)
	}
	commit()
	w.want("b; c; r@m:1")
	w.drain()
	w.want("b; r@m:1")
}
