package collect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/exeunt/exeunt/registry/internal/statement"
	"github.com/exeunt/exeunt/registry/registrytest"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// The races of docs/spec/registry-tracking.md, each with its interleaving
// forced, on PostgreSQL. SQLite has one writer: there a review is before or
// after any other transaction, and there is nothing to force.

// The steps of a review's transaction that a test can stop after.
const (
	afterHold   = 1
	afterTake   = 2
	afterVerify = 3
	afterDelete = 4
)

// stoppedTx calls a function after one of the batches that a review sends.
type stoppedTx struct {
	review.Tx
	sent, at int
	stop     func()
}

func (t *stoppedTx) Send(ctx context.Context, b *sqldb.Batch) error {
	err := t.Tx.Send(ctx, b)
	if t.sent++; err == nil && t.sent == t.at {
		t.stop()
	}
	return err
}

func raceWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	w := newWorld(t, dbtest.OpenDB(t, sqldb.Postgres), Options{})
	w.clock.Advance(25 * time.Hour)
	return w
}

// reviewStopped takes one turn of an engine, and calls stop after a step. It
// returns the result of the turn.
func (w *world) reviewStopped(q review.Queue, r review.Reviewer[*countingTx], at int, stop func()) review.Result {
	w.Helper()
	stopped := false
	transact := func(ctx context.Context, fn func(*countingTx) error) error {
		return w.c.transact(ctx, func(tx *countingTx) error {
			tx.Tx = &stoppedTx{Tx: tx.Tx, at: at, stop: func() { stopped = true; stop() }}
			return fn(tx)
		})
	}
	e, err := review.New(w.DB, q, r, transact, review.Options{Now: w.clock.Now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		w.Fatal(err)
	}
	result, err := e.RunOne(w.Context())
	if err != nil || !stopped || result.Failed != 0 {
		w.Fatalf("stopped: %v, result %+v, error %v", stopped, result, err)
	}
	return result
}

func (w *world) reviewManifestsStopped(at int, stop func()) review.Result {
	w.Helper()
	return w.reviewStopped(manifestQueue, &manifestReviewer{w.c}, at, stop)
}

// reviewBlobsStopped has one more step: it reads the repositories of unused
// blobs.
func (w *world) reviewBlobsStopped(at int, stop func()) review.Result {
	w.Helper()
	if at == afterDelete {
		at++
	}
	return w.reviewStopped(blobQueue, &blobReviewer{w.c}, at, stop)
}

// keepOnly leaves one review in a queue.
func (w *world) keepOnly(table, key, value string) {
	w.Helper()
	w.Exec(`DELETE FROM `+table+` WHERE `+key+` <> $1`, value)
}

func (w *world) onlyManifest(repo, name string) {
	w.Helper()
	w.keepOnly("gc_manifest_review_queue", "manifest", manifestKey(w.Repos[repo], w.DigestOf(name)))
}

// Race 1: the last tag is deleted after the review has seen it.
func TestGCRaceLastTagDeleted(t *testing.T) {
	for name, at := range map[string]int{"before verify": afterTake, "after verify": afterVerify} {
		t.Run(name, func(t *testing.T) {
			w := raceWorld(t)
			w.Push(image{Repo: "r", Name: "m", Tags: []string{"1"}})
			r := w.reviewManifestsStopped(at, func() {
				w.Untag("r", "1") // does not wait
			})
			if at == afterVerify {
				if r.Left != 1 {
					t.Errorf("the review was settled: %+v", r)
				}
				w.WantManifestQueue("r@m tag_delete 1440m")
			}
			w.drain()
			w.Want("")
		})
	}
}

// Race 2: the last list is deleted after the review has seen it.
func TestGCRaceLastListDeleted(t *testing.T) {
	w := raceWorld(t)
	w.Push(image{Repo: "r", Name: "m"})
	w.Push(image{Repo: "r", Name: "list", Children: []string{"m"}, Tags: []string{"1"}})
	w.onlyManifest("r", "m")
	r := w.reviewManifestsStopped(afterVerify, func() { w.DeleteManifest("r", "list") })
	if r.Left != 1 {
		t.Errorf("the review was settled: %+v", r)
	}
	w.WantManifestQueue("r@m manifest_list_delete 1440m")
	w.drain()
	w.Want("")
}

// Race 3: a manifest that is about to be deleted is tagged. A transaction that
// only tags finds no manifest; a push stores it again.
func TestGCRaceTagCreated(t *testing.T) {
	t.Run("tag", func(t *testing.T) {
		w := raceWorld(t)
		id := w.Push(image{Repo: "r", Name: "m"})
		var done <-chan error
		w.reviewManifestsStopped(afterVerify, func() {
			done = w.Begin(func() error {
				return w.Try(func(b *sqldb.Batch) { b.Exec(statement.PutTag, 1, w.Repos["r"], "1", id, 0) })
			})
		})
		if err := <-done; err == nil {
			t.Error("tagged a manifest that is gone")
		}
		w.Want("")
	})
	t.Run("push", func(t *testing.T) {
		w := raceWorld(t)
		w.Push(image{Repo: "r", Name: "m", Layers: []string{"l"}})
		w.keepOnly("gc_blob_review_queue", "digest", "none")
		var done <-chan error
		r := w.reviewManifestsStopped(afterVerify, func() {
			done = w.Begin(func() error {
				var id int64
				return w.TryPush(image{Repo: "r", Name: "m", Layers: []string{"l"}, Tags: []string{"1"}}, &id)
			})
		})
		if err := <-done; err != nil || r.Acted != 1 {
			t.Errorf("push: %v; review: %+v", err, r)
		}
		w.Want("l; r@m:1")
		w.drain()
		w.Want("l; r@m:1")
	})
	t.Run("tag first", func(t *testing.T) {
		w := raceWorld(t)
		id := w.Push(image{Repo: "r", Name: "m"})
		commit := w.Open(func(tx *sqldb.Tx) error { return tx.Exec(t.Context(), statement.PutTag, 1, w.Repos["r"], "1", id, 0) })
		r := w.reviewManifestsStopped(afterVerify, func() {}) // skips it, and does not wait
		if r.Postponed != 1 {
			t.Errorf("the review did not pass over a manifest in use: %+v", r)
		}
		commit()
		w.drain()
		w.Want("r@m:1")
	})
	t.Run("pushed again after the claim", func(t *testing.T) {
		w := raceWorld(t)
		w.Push(image{Repo: "r", Name: "m"})
		r := w.reviewManifestsStopped(afterHold, func() {
			// By digest: no tag, no list, only the delay of a day.
			w.Exec(`UPDATE manifests SET media_type_id = media_type_id`)
			w.Exec(`UPDATE gc_manifest_review_queue SET review_after = $1`, w.clock.Now().Add(24*time.Hour).UnixMilli())
		})
		if r.Left != 1 {
			t.Errorf("the review was settled: %+v", r)
		}
		w.Want("r@m")
	})
}

// Race 4: a list is made of a manifest that is about to be deleted.
func TestGCRaceListCreated(t *testing.T) {
	list := image{Repo: "r", Name: "list", Children: []string{"m"}, Tags: []string{"1"}}
	t.Run("review first", func(t *testing.T) {
		w := raceWorld(t)
		w.Push(image{Repo: "r", Name: "m"})
		w.DigestOf("list")
		var done <-chan error
		w.reviewManifestsStopped(afterVerify, func() {
			done = w.Begin(func() error { var id int64; return w.TryPush(list, &id) })
		})
		if err := <-done; !errors.Is(err, registrytest.ErrChildUnknown) {
			t.Errorf("the list was answered with %v", err)
		}
		w.Want("")
	})
	t.Run("list first", func(t *testing.T) {
		w := raceWorld(t)
		w.Push(image{Repo: "r", Name: "m"})
		commit := w.Open(func(tx *sqldb.Tx) error { var id int64; return w.SendPush(tx, list, &id) })
		if r := w.reviewManifestsStopped(afterVerify, func() {}); r.Postponed != 1 {
			t.Errorf("the review did not pass over a manifest in use: %+v", r)
		}
		commit()
		w.drain()
		w.Want("r@list:1; r@m")
	})
}

// A referrer is pushed while its subject is being deleted: the trigger of the
// subject does not see it, and its own review must not see the subject.
func TestGCRaceReferrerPushed(t *testing.T) {
	w := raceWorld(t)
	w.Push(image{Repo: "r", Name: "m"})
	commit := w.Open(func(tx *sqldb.Tx) error { return tx.Exec(t.Context(), `DELETE FROM manifests`) })
	w.Push(image{Repo: "r", Name: "sbom", Subject: "m"})
	w.onlyManifest("r", "sbom")
	if r := w.reviewManifestsStopped(afterVerify, func() {}); r.Postponed != 1 {
		t.Errorf("the review came to a decision: %+v", r)
	}
	commit()
	w.drain()
	w.Want("")
}

// TestGCDeletesInOrder: two transactions that delete manifests write the same
// rows of the queues, and must not deadlock. The images share their layers in
// different orders, and the config of one is a layer of another.
func TestGCDeletesInOrder(t *testing.T) {
	w := raceWorld(t)
	var ids [2][]int64
	blobs := []string{"a", "b", "c", "d", "e"}
	for i := range 60 {
		n := i % len(blobs)
		layers := append(slices.Clone(blobs[n:]), blobs[:n]...)
		m := image{Repo: "r", Name: fmt.Sprint("m", i), Config: layers[0], Layers: layers[1:]}
		if i%3 == 2 {
			m.Children = []string{"m0", "m1"}
		}
		if i > 1 { // the first two are children
			ids[i%2] = append(ids[i%2], w.Push(m))
		} else {
			w.Push(m)
		}
	}
	var running sync.WaitGroup
	for _, mine := range ids {
		running.Go(func() {
			for pair := range slices.Chunk(mine, 2) {
				err := w.Try(func(b *sqldb.Batch) {
					b.Exec(statement.OrderDeletedManifests, pair)
					b.Exec(deleteManifests[sqldb.Postgres], pair)
				})
				if err != nil {
					w.Error(err)
				}
			}
		})
	}
	running.Wait()
	w.drain()
	w.Want("")
}
