package collect

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/registry/registrytest"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
)

// The races between the removal of a Repository, its restore and its review, each
// with the interleaving forced, on PostgreSQL. Package registry has those with
// pushes.

// repositoryWorld has the Repository shop/web, with one image.
func repositoryWorld(t *testing.T) *world {
	t.Helper()
	w := raceWorld(t)
	w.Repository()
	return w
}

// removed removes the object, into the archive or for good.
func (w *world) removed(archived bool) {
	w.Helper()
	w.Transact(func(b *sqldb.Batch) {
		if archived {
			b.Exec(registrytest.ArchiveObject)
		}
		b.Exec(registrytest.DeleteObject)
		b.Exec(`UPDATE gc_repository_review_queue SET review_after = 0`) // the safety net
	})
}

func (w *world) reviewRemovedStopped(at int, stop func()) review.Result {
	w.Helper()
	return w.reviewStopped(repositoryQueue, &repositoryReviewer{w.c}, at, stop)
}

// TestRaceRestoreDuringReview: the review has locked the row; the restore waits;
// the review finds the object in the archive, and changes nothing.
func TestRaceRestoreDuringReview(t *testing.T) {
	w := repositoryWorld(t)
	w.removed(true)
	var restored <-chan error
	result := w.reviewRemovedStopped(afterTake, func() {
		restored = w.Begin(func() error {
			commit := w.Open(func(tx *sqldb.Tx) error { return registrytest.Restore(w.Context(), tx) })
			commit()
			return nil
		})
	})
	if err := <-restored; err != nil || result.Acted != 0 {
		t.Errorf("restore: %v; review: %+v", err, result)
	}
	w.WantImageAt("shop/web")
}

// TestRaceReviewDuringRestore: the restore has locked the row; the review skips
// it, and later finds nothing to do.
func TestRaceReviewDuringRestore(t *testing.T) {
	w := repositoryWorld(t)
	w.removed(true)
	commit := w.Open(func(tx *sqldb.Tx) error { return registrytest.Restore(w.Context(), tx) })
	if result := w.reviewRemovedStopped(afterTake, func() {}); result.Postponed != 1 || result.Acted != 0 {
		t.Errorf("review: %+v", result)
	}
	commit()
	w.WantImageAt("shop/web")
	w.Exec(`UPDATE gc_repository_review_queue SET review_after = 0`)
	if result := w.reviewRemovedStopped(afterTake, func() {}); result.Done != 1 || result.Acted != 0 {
		t.Errorf("review afterwards: %+v", result)
	}
	w.WantImageAt("shop/web")
}

// TestRemovalInterrupted: if a review dies between two steps, the next one
// continues.
func TestRemovalInterrupted(t *testing.T) {
	each(t, func(w *world) {
		w.Object()
		for _, name := range []string{"a", "b"} {
			w.Push(image{Repo: "shop/web", Name: name, Config: "c", Layers: []string{"l"}, Tags: []string{name}})
		}
		w.Push(image{Repo: "shop/web", Name: "list", Children: []string{"a", "b"}})
		w.removed(false)
		for range 10 {
			dies := errors.New("dies")
			transact := func(ctx context.Context, fn func(*countingTx) error) error {
				return w.c.transact(ctx, func(tx *countingTx) error { return errors.Join(fn(tx), dies) })
			}
			e, err := review.New(w.DB, repositoryQueue, &repositoryReviewer{w.c}, transact, review.Options{Now: w.clock.Now})
			if err != nil {
				w.Fatal(err)
			}
			if _, err := e.RunOne(w.Context()); err != nil {
				w.Fatal(err)
			}
			w.Exec(`UPDATE gc_repository_review_queue SET review_after = 0, claim_token = NULL, claim_until = NULL`)
			turn, err := w.c.RunOne(w.Context())
			if err != nil {
				w.Fatal(err)
			}
			if turn.Repositories.Done == 1 {
				break
			}
		}
		for _, table := range []string{"repositories", "manifests", "tags", "manifest_references", "layers", "repository_blobs", "gc_repository_review_queue"} {
			if n := w.Count(`SELECT count(*) FROM ` + table); n != 0 {
				w.Errorf("%d rows in %s", n, table)
			}
		}
	})
}

// TestRaceUndelete: an undelete runs while the review deletes the manifest. It
// waits, and then pushes the manifest again, because its blobs still exist.
func TestRaceUndelete(t *testing.T) {
	w := raceWorld(t)
	r := registry.New(registry.Config{DB: w.DB, Blobs: w.Store, SmallBlobs: -1})
	send := func(method, path, body string) {
		t.Helper()
		answer := httptest.NewRecorder()
		r.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
		if answer.Code >= 300 {
			t.Fatalf("%s %s: %d %s", method, path, answer.Code, answer.Body)
		}
	}
	config := digest.FromString("{}").String()
	send("POST", "/v2/r/blobs/uploads/?digest="+config, "{}")
	send("PUT", "/v2/r/manifests/t", `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",`+
		`"config":{"mediaType":"application/vnd.oci.empty.v1+json","digest":"`+config+`","size":2},"layers":[]}`)
	send("DELETE", "/v2/r/manifests/t", "")
	var done <-chan error
	result := w.reviewManifestsStopped(afterDelete, func() {
		done = w.Begin(func() error {
			_, err := r.Undelete(t.Context(), "r", "t", "", false)
			return err
		})
	})
	if err := <-done; err != nil || result.Acted != 1 {
		t.Errorf("undelete: %v; review: %+v", err, result)
	}
	send("GET", "/v2/r/manifests/t", "")
	w.drain()
	send("GET", "/v2/r/manifests/t", "")
}
