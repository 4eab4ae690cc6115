package collect

import (
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/registry/internal/statement"
	"github.com/exeunt/exeunt/sqldb"
)

// A review handles a whole batch in each statement. The race of one row must not
// change the outcome of the others.

func pushPlain(w *world, names ...string) (ids map[string]int64) {
	w.Helper()
	ids = map[string]int64{}
	for _, name := range names {
		ids[name] = w.Push(image{Repo: "r", Name: name})
	}
	return ids
}

func TestGCRaceBatchOfManifests(t *testing.T) {
	t.Run("one is being tagged", func(t *testing.T) {
		w := raceWorld(t)
		ids := pushPlain(w, "a", "b", "c")
		commit := w.Open(func(tx *sqldb.Tx) error {
			return tx.Exec(t.Context(), statement.PutTag, 1, w.Repos["r"], "1", ids["b"], 0)
		})
		if r, err := w.c.manifests.RunOne(t.Context()); err != nil || r.Acted != 2 || r.Postponed != 1 {
			t.Errorf("%+v, %v", r, err)
		}
		commit()
		w.drain()
		w.Want("r@b:1")
	})
	t.Run("one is gone and one was pushed again", func(t *testing.T) {
		w := raceWorld(t)
		pushPlain(w, "a", "b", "c")
		r := w.reviewManifestsStopped(afterHold, func() {
			w.DeleteManifest("r", "a")
			w.Exec(`UPDATE manifests SET media_type_id = media_type_id WHERE digest = $1`, w.DigestOf("b"))
			w.Exec(`UPDATE gc_manifest_review_queue SET review_after = $1 WHERE manifest LIKE '%' || $2`,
				w.clock.Now().Add(24*time.Hour).UnixMilli(), w.DigestOf("b"))
		})
		if r.Acted != 1 || r.Done != 2 || r.Left != 1 {
			t.Errorf("%+v", r)
		}
		w.Want("r@b")
	})
	t.Run("one loses its tag after it was seen", func(t *testing.T) {
		w := raceWorld(t)
		pushPlain(w, "a", "c")
		w.Push(image{Repo: "r", Name: "b", Tags: []string{"1"}})
		if r := w.reviewManifestsStopped(afterVerify, func() { w.Untag("r", "1") }); r.Acted != 2 || r.Done != 2 || r.Left != 1 {
			t.Errorf("%+v", r)
		}
		w.Want("r@b")
		w.WantManifestQueue("r@b tag_delete 1440m")
		w.drain()
		w.Want("")
	})
	t.Run("one's subject is being deleted", func(t *testing.T) {
		w := raceWorld(t)
		ids := pushPlain(w, "a", "b")
		commit := w.Open(func(tx *sqldb.Tx) error {
			return tx.Exec(t.Context(), `DELETE FROM manifests WHERE id = $1`, ids["a"])
		})
		w.Push(image{Repo: "r", Name: "of a", Subject: "a"})
		w.Push(image{Repo: "r", Name: "of b", Subject: "b"})
		w.Push(image{Repo: "r", Name: "of none", Subject: "none"})
		w.Exec(`DELETE FROM gc_manifest_review_queue WHERE manifest_id IN ($1, $2)`, ids["a"], ids["b"])
		if r, err := w.c.manifests.RunOne(t.Context()); err != nil || r.Acted != 1 || r.Postponed != 1 || r.Done != 2 {
			t.Errorf("%+v, %v", r, err)
		}
		commit()
		w.drain()
		w.Want("r@b; r@of b")
	})
}

// TestGCBatchOfSigned: everything that loses its keeper by a batch is reviewed,
// and the signatures are removed with their images.
func TestGCBatchOfSigned(t *testing.T) {
	w := raceWorld(t)
	for _, name := range []string{"a", "b", "c"} {
		tag := strings.ReplaceAll(w.DigestOf(name), ":", "-")
		w.Push(image{Repo: "r", Name: name, Config: "{}", Layers: []string{"layer of " + name}})
		w.Push(image{Repo: "r", Name: "signature of " + name, Tags: []string{tag + ".sig", tag + ".att"}})
		w.Push(image{Repo: "r", Name: "referrer of " + name, Subject: name})
	}
	w.Push(image{Repo: "r", Name: "other", Tags: []string{"other.sig"}})
	w.drain()
	w.Want("r@other:other.sig")
}

func TestGCRaceBatchOfBlobs(t *testing.T) {
	w := raceWorld(t)
	for _, name := range []string{"a", "b", "c", "d"} {
		w.Blob("r", name)
	}
	commit := w.Open(func(tx *sqldb.Tx) error {
		var id int64
		return w.SendPush(tx, image{Repo: "r", Name: "m", Layers: []string{"b"}, Tags: []string{"1"}}, &id)
	})
	r := w.reviewBlobsStopped(afterHold, func() {
		w.Exec(`UPDATE gc_blob_review_queue SET review_after = $1 WHERE digest = $2`, w.clock.Now().Add(24*time.Hour).UnixMilli(), w.DigestOf("c"))
		w.Exec(`DELETE FROM blobs WHERE digest = $1`, w.DigestOf("d"))
	})
	if r.Acted != 1 || r.Done != 2 || r.Postponed != 2 {
		t.Errorf("%+v", r)
	}
	commit()
	w.Want("b; c; r@m:1")
	w.drain()
	w.Want("b; r@m:1")
}
