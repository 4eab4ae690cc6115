package registry

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
)

// The races between pushes, the removal of a Repository, and its restore, each
// with the interleaving forced, on PostgreSQL.

const (
	insertTestObject = `INSERT INTO objects (id, uid, kind, namespace, name, revision) VALUES ($1, $2, 'repositories.registry.exeunt.dev', 'shop', 'web', $1)`
	insertTestChange = `
INSERT INTO changes (revision, object, uid, kind, namespace, name, type, body)
VALUES ($1, $1, $2, 'repositories.registry.exeunt.dev', 'shop', 'web', 1, $3)`
	archiveTestObject = `
INSERT INTO archive (id, uid, kind, namespace, name, removed_at, actor, cascade, size)
VALUES (9, 'first', 'repositories.registry.exeunt.dev', 'shop', 'web', 0, '', 'first', 0)`
	testBody         = `{"spec":{"path":"shop/web"}}`
	deleteTestObject = `DELETE FROM objects WHERE uid = 'first'`
)

// repositoryWorld has the Repository shop/web, with one image.
func repositoryWorld(t *testing.T) (w *gcWorld, r *Registry, manifest int64) {
	t.Helper()
	w = raceWorld(t)
	w.transact(func(b *sqldb.Batch) {
		b.Exec(insertTestObject, 1, "first")
		b.Exec(insertTestChange, 1, "first", []byte(testBody))
	})
	manifest = w.push(image{repo: "shop/web", name: "m", config: "c", layers: []string{"l"}, tags: []string{"t"}})
	return w, New(Config{DB: w.db, Blobs: w.store, SmallBlobs: -1}), manifest
}

func (w *gcWorld) where(want string) {
	w.Helper()
	var got string
	if _, err := w.db.Row(w.Context(), `SELECT r.path FROM repositories r JOIN tags t ON t.repository_id = r.id WHERE t.name = 't'`, nil, &got); err != nil {
		w.Fatal(err)
	}
	if got != want {
		w.Errorf("the image is at %q, not %q", got, want)
	}
}

// TestRaceRemovalDuringPush: the removal waits for the push, and removes the
// pushed content too.
func TestRaceRemovalDuringPush(t *testing.T) {
	w, r, manifest := repositoryWorld(t)
	var repo repository
	commit := w.open(func(tx *sqldb.Tx) (err error) {
		repo, err = r.lockTarget(w.Context(), tx, "shop/web")
		return errors.Join(err, exec(w.Context(), tx, putTag, repo.namespace, repo.id, "late", manifest, 1))
	})
	removed := w.begin(func() error { return w.try(func(b *sqldb.Batch) { b.Exec(deleteTestObject) }) })
	commit()
	if err := <-removed; err != nil {
		t.Fatal(err)
	}
	w.where("@first")
	if n := w.count(`SELECT count(*) FROM tags t JOIN repositories r ON r.id = t.repository_id WHERE r.path NOT LIKE '@%'`); n != 0 {
		t.Errorf("%d tags can be reached", n)
	}
}

// TestRacePushDuringRemoval: the push waits for the removal, and stores nothing
// in the removed repository.
func TestRacePushDuringRemoval(t *testing.T) {
	w, r, _ := repositoryWorld(t)
	commit := w.open(func(tx *sqldb.Tx) error { return exec(w.Context(), tx, deleteTestObject) })
	pushed := w.begin(func() error { return w.lock(r) })
	commit()
	if err := <-pushed; !errors.Is(err, errNoTarget) {
		t.Errorf("push: %v", err)
	}
	w.where("@first")
}

// TestRacePushDuringMark: the push waits until the object is DELETING, and is
// refused.
func TestRacePushDuringMark(t *testing.T) {
	w, r, _ := repositoryWorld(t)
	commit := w.open(func(tx *sqldb.Tx) error {
		return exec(w.Context(), tx, `UPDATE objects SET deletion_time = 1 WHERE uid = 'first'`)
	})
	pushed := w.begin(func() error { return w.lock(r) })
	commit()
	var refused *Error
	if err := <-pushed; !errors.As(err, &refused) || refused.Code != Denied {
		t.Errorf("push: %v", err)
	}
}

// TestRaceUploadBeginsDuringRemoval: an upload has found the repository, and
// waits while its row is deleted. It is refused.
func TestRaceUploadBeginsDuringRemoval(t *testing.T) {
	w := raceWorld(t)
	r := New(Config{DB: w.db, Blobs: w.store})
	w.repo("to")
	commit := w.open(func(tx *sqldb.Tx) error { return exec(w.Context(), tx, `DELETE FROM repositories WHERE path = 'to'`) })
	done := w.begin(func() error {
		return r.start(w.Context(), Request{Repository: "to", Upload: "begun"}, digest.SHA256)
	})
	commit()
	var refused *Error
	if err := <-done; !errors.As(err, &refused) || refused.Code != Denied {
		t.Errorf("begun: %v", err)
	}
}

// TestRaceMountDuringRemoval: the same for a mount. Nothing is mounted, and the
// client uploads.
func TestRaceMountDuringRemoval(t *testing.T) {
	w := raceWorld(t)
	r := New(Config{DB: w.db, Blobs: w.store})
	w.blob("from", "l")
	w.repo("to")
	commit := w.open(func(tx *sqldb.Tx) error { return exec(w.Context(), tx, `DELETE FROM repositories WHERE path = 'to'`) })
	var mounted digest.Digest
	done := w.begin(func() (err error) {
		mounted, err = r.mount(w.Context(), "to", "from", w.digestOf("l"))
		return err
	})
	commit()
	if err := <-done; err != nil || mounted != "" {
		t.Errorf("mounted %q: %v", mounted, err)
	}
}

// lock runs the first statements of a push.
func (w *gcWorld) lock(r *Registry) error {
	return r.writer.do(w.Context(), func(tx *sqldb.Tx) error {
		_, err := r.lockTarget(w.Context(), tx, "shop/web")
		return err
	})
}

// removed removes the object, into the archive or for good.
func (w *gcWorld) removed(archived bool) {
	w.Helper()
	w.transact(func(b *sqldb.Batch) {
		if archived {
			b.Exec(archiveTestObject)
		}
		b.Exec(deleteTestObject)
		b.Exec(`UPDATE gc_repository_review_queue SET review_after = 0`) // the safety net
	})
}

func restoreTestObject(ctx context.Context, tx *sqldb.Tx) error {
	return errors.Join(
		exec(ctx, tx, `UPDATE archive SET restored_as = 'second' WHERE id = 9`),
		exec(ctx, tx, insertTestObject, 2, "second"), exec(ctx, tx, insertTestChange, 2, "second", []byte(testBody)))
}

func (w *gcWorld) reviewRemovedStopped(at int, stop func()) review.Result {
	w.Helper()
	return w.reviewStopped(repositoryQueue, &repositoryReviewer{w.c}, at, stop)
}

// TestRaceRestoreDuringReview: the review has locked the row; the restore waits;
// the review finds the object in the archive, and changes nothing.
func TestRaceRestoreDuringReview(t *testing.T) {
	w, _, _ := repositoryWorld(t)
	w.removed(true)
	var restored <-chan error
	result := w.reviewRemovedStopped(afterTake, func() {
		restored = w.begin(func() error {
			commit := w.open(func(tx *sqldb.Tx) error { return restoreTestObject(w.Context(), tx) })
			commit()
			return nil
		})
	})
	if err := <-restored; err != nil || result.Acted != 0 {
		t.Errorf("restore: %v; review: %+v", err, result)
	}
	w.where("shop/web")
}

// TestRaceReviewDuringRestore: the restore has locked the row; the review skips
// it, and later finds nothing to do.
func TestRaceReviewDuringRestore(t *testing.T) {
	w, _, _ := repositoryWorld(t)
	w.removed(true)
	commit := w.open(func(tx *sqldb.Tx) error { return restoreTestObject(w.Context(), tx) })
	if result := w.reviewRemovedStopped(afterTake, func() {}); result.Postponed != 1 || result.Acted != 0 {
		t.Errorf("review: %+v", result)
	}
	commit()
	w.where("shop/web")
	w.exec(`UPDATE gc_repository_review_queue SET review_after = 0`)
	if result := w.reviewRemovedStopped(afterTake, func() {}); result.Done != 1 || result.Acted != 0 {
		t.Errorf("review afterwards: %+v", result)
	}
	w.where("shop/web")
}

// TestRemovalInterrupted: if a review dies between two steps, the next one
// continues.
func TestRemovalInterrupted(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		w.transact(func(b *sqldb.Batch) {
			b.Exec(insertTestObject, 1, "first")
			b.Exec(insertTestChange, 1, "first", []byte(testBody))
		})
		for _, name := range []string{"a", "b"} {
			w.push(image{repo: "shop/web", name: name, config: "c", layers: []string{"l"}, tags: []string{name}})
		}
		w.push(image{repo: "shop/web", name: "list", children: []string{"a", "b"}})
		w.removed(false)
		for range 10 {
			dies := errors.New("dies")
			transact := func(ctx context.Context, fn func(*countingTx) error) error {
				return w.c.transact(ctx, func(tx *countingTx) error { return errors.Join(fn(tx), dies) })
			}
			e, err := review.New(w.db, repositoryQueue, &repositoryReviewer{w.c}, transact, review.Options{Now: w.now})
			if err != nil {
				w.Fatal(err)
			}
			if _, err := e.RunOne(w.Context()); err != nil {
				w.Fatal(err)
			}
			w.exec(`UPDATE gc_repository_review_queue SET review_after = 0, claim_token = NULL, claim_until = NULL`)
			turn, err := w.c.RunOne(w.Context())
			if err != nil {
				w.Fatal(err)
			}
			if turn.Repositories.Done == 1 {
				break
			}
		}
		for _, table := range []string{"repositories", "manifests", "tags", "manifest_references", "layers", "repository_blobs", "gc_repository_review_queue"} {
			if n := w.count(`SELECT count(*) FROM ` + table); n != 0 {
				w.Errorf("%d rows in %s", n, table)
			}
		}
	})
}

// TestRaceUndelete: an undelete runs while the review deletes the manifest. It
// waits, and then pushes the manifest again, because its blobs still exist.
func TestRaceUndelete(t *testing.T) {
	w := raceWorld(t)
	r := New(Config{DB: w.db, Blobs: w.store, SmallBlobs: -1})
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
		done = w.begin(func() error {
			_, err := r.Undelete(t.Context(), "r", "t", "")
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
