package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

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

func raceWorld(t *testing.T) *gcWorld {
	t.Helper()
	t.Parallel()
	w := newGCWorld(t, dbtest.OpenDB(t, sqldb.Postgres), Options{})
	w.later(25 * time.Hour)
	return w
}

// reviewStopped takes one turn of an engine, and calls stop after a step. It
// returns the result of the turn.
func (w *gcWorld) reviewStopped(q review.Queue, r review.Reviewer[*countingTx], at int, stop func()) review.Result {
	w.Helper()
	stopped := false
	transact := func(ctx context.Context, fn func(*countingTx) error) error {
		return w.c.transact(ctx, func(tx *countingTx) error {
			tx.Tx = &stoppedTx{Tx: tx.Tx, at: at, stop: func() { stopped = true; stop() }}
			return fn(tx)
		})
	}
	e, err := review.New(w.db, q, r, transact, review.Options{Now: w.now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		w.Fatal(err)
	}
	result, err := e.RunOne(w.Context())
	if err != nil || !stopped || result.Failed != 0 {
		w.Fatalf("stopped: %v, result %+v, error %v", stopped, result, err)
	}
	return result
}

func (w *gcWorld) reviewManifestsStopped(at int, stop func()) review.Result {
	w.Helper()
	return w.reviewStopped(manifestQueue, &manifestReviewer{w.c}, at, stop)
}

// reviewBlobsStopped has one more step: it reads the repositories of unused
// blobs.
func (w *gcWorld) reviewBlobsStopped(at int, stop func()) review.Result {
	w.Helper()
	if at == afterDelete {
		at++
	}
	return w.reviewStopped(blobQueue, &blobReviewer{w.c}, at, stop)
}

// begin starts something that must wait for the review, and returns when it
// waits. The channel gets its result.
func (w *gcWorld) begin(fn func() error) <-chan error {
	w.Helper()
	done := make(chan error, 1)
	go func() { done <- fn() }()
	if !w.waiting() {
		w.Error("it did not wait for the review")
	}
	return done
}

// waiting returns when a transaction waits for a lock, or reports that none
// does.
func (w *gcWorld) waiting() bool {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		var n int
		_, err := w.db.Row(w.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`, nil, &n)
		if err != nil {
			w.Error(err)
			return false
		}
		if n > 0 {
			return true
		}
	}
	return false
}

// open begins a transaction, and returns the function that commits it.
func (w *gcWorld) open(fn func(tx *sqldb.Tx) error) (commit func()) {
	w.Helper()
	tx, err := w.db.Begin(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(tx.Rollback) // no effect after a commit
	if err := fn(tx); err != nil {
		w.Fatal(err)
	}
	return func() {
		if err := tx.Commit(w.Context()); err != nil {
			w.Error(err)
		}
	}
}

// keepOnly leaves one review in a queue.
func (w *gcWorld) keepOnly(table, key, value string) {
	w.Helper()
	w.exec(`DELETE FROM `+table+` WHERE `+key+` <> $1`, value)
}

func (w *gcWorld) onlyManifest(repo, name string) {
	w.Helper()
	w.keepOnly("gc_manifest_review_queue", "manifest", manifestKey(w.repos[repo], w.digestOf(name)))
}

// Race 1: the last tag is deleted after the review has seen it.
func TestGCRaceLastTagDeleted(t *testing.T) {
	for name, at := range map[string]int{"before verify": afterTake, "after verify": afterVerify} {
		t.Run(name, func(t *testing.T) {
			w := raceWorld(t)
			w.push(image{repo: "r", name: "m", tags: []string{"1"}})
			r := w.reviewManifestsStopped(at, func() {
				w.untag("r", "1") // does not wait
			})
			if at == afterVerify {
				if r.Left != 1 {
					t.Errorf("the review was settled: %+v", r)
				}
				w.wantManifestQueue("r@m tag_delete 1440m")
			}
			w.drain()
			w.want("")
		})
	}
}

// Race 2: the last list is deleted after the review has seen it.
func TestGCRaceLastListDeleted(t *testing.T) {
	w := raceWorld(t)
	w.push(image{repo: "r", name: "m"})
	w.push(image{repo: "r", name: "list", children: []string{"m"}, tags: []string{"1"}})
	w.onlyManifest("r", "m")
	r := w.reviewManifestsStopped(afterVerify, func() { w.deleteManifest("r", "list") })
	if r.Left != 1 {
		t.Errorf("the review was settled: %+v", r)
	}
	w.wantManifestQueue("r@m manifest_list_delete 1440m")
	w.drain()
	w.want("")
}

// Race 3: a manifest that is about to be deleted is tagged. A transaction that
// only tags finds no manifest; a push stores it again.
func TestGCRaceTagCreated(t *testing.T) {
	t.Run("tag", func(t *testing.T) {
		w := raceWorld(t)
		id := w.push(image{repo: "r", name: "m"})
		var done <-chan error
		w.reviewManifestsStopped(afterVerify, func() {
			done = w.begin(func() error {
				return w.try(func(b *sqldb.Batch) { b.Exec(putTag, 1, w.repos["r"], "1", id, 0) })
			})
		})
		if err := <-done; err == nil {
			t.Error("tagged a manifest that is gone")
		}
		w.want("")
	})
	t.Run("push", func(t *testing.T) {
		w := raceWorld(t)
		w.push(image{repo: "r", name: "m", layers: []string{"l"}})
		w.keepOnly("gc_blob_review_queue", "digest", "none")
		var done <-chan error
		r := w.reviewManifestsStopped(afterVerify, func() {
			done = w.begin(func() error {
				var id int64
				return w.tryPush(image{repo: "r", name: "m", layers: []string{"l"}, tags: []string{"1"}}, &id)
			})
		})
		if err := <-done; err != nil || r.Acted != 1 {
			t.Errorf("push: %v; review: %+v", err, r)
		}
		w.want("l; r@m:1")
		w.drain()
		w.want("l; r@m:1")
	})
	t.Run("tag first", func(t *testing.T) {
		w := raceWorld(t)
		id := w.push(image{repo: "r", name: "m"})
		commit := w.open(func(tx *sqldb.Tx) error { return exec(t.Context(), tx, putTag, 1, w.repos["r"], "1", id, 0) })
		r := w.reviewManifestsStopped(afterVerify, func() {}) // skips it, and does not wait
		if r.Postponed != 1 {
			t.Errorf("the review did not pass over a manifest in use: %+v", r)
		}
		commit()
		w.drain()
		w.want("r@m:1")
	})
	t.Run("pushed again after the claim", func(t *testing.T) {
		w := raceWorld(t)
		w.push(image{repo: "r", name: "m"})
		r := w.reviewManifestsStopped(afterHold, func() {
			// By digest: no tag, no list, only the delay of a day.
			w.exec(`UPDATE manifests SET media_type_id = media_type_id`)
			w.exec(`UPDATE gc_manifest_review_queue SET review_after = $1`, w.now().Add(24*time.Hour).UnixMilli())
		})
		if r.Left != 1 {
			t.Errorf("the review was settled: %+v", r)
		}
		w.want("r@m")
	})
}

// Race 4: a list is made of a manifest that is about to be deleted.
func TestGCRaceListCreated(t *testing.T) {
	list := image{repo: "r", name: "list", children: []string{"m"}, tags: []string{"1"}}
	t.Run("review first", func(t *testing.T) {
		w := raceWorld(t)
		w.push(image{repo: "r", name: "m"})
		w.digestOf("list")
		var done <-chan error
		w.reviewManifestsStopped(afterVerify, func() {
			done = w.begin(func() error { var id int64; return w.tryPush(list, &id) })
		})
		if err := <-done; !errors.Is(err, errChildUnknown) {
			t.Errorf("the list was answered with %v", err)
		}
		w.want("")
	})
	t.Run("list first", func(t *testing.T) {
		w := raceWorld(t)
		w.push(image{repo: "r", name: "m"})
		commit := w.open(func(tx *sqldb.Tx) error { var id int64; return w.sendPush(tx, list, &id) })
		if r := w.reviewManifestsStopped(afterVerify, func() {}); r.Postponed != 1 {
			t.Errorf("the review did not pass over a manifest in use: %+v", r)
		}
		commit()
		w.drain()
		w.want("r@list:1; r@m")
	})
}

// A referrer is pushed while its subject is being deleted: the trigger of the
// subject does not see it, and its own review must not see the subject.
func TestGCRaceReferrerPushed(t *testing.T) {
	w := raceWorld(t)
	w.push(image{repo: "r", name: "m"})
	commit := w.open(func(tx *sqldb.Tx) error { return exec(t.Context(), tx, `DELETE FROM manifests`) })
	w.push(image{repo: "r", name: "sbom", subject: "m"})
	w.onlyManifest("r", "sbom")
	if r := w.reviewManifestsStopped(afterVerify, func() {}); r.Postponed != 1 {
		t.Errorf("the review came to a decision: %+v", r)
	}
	commit()
	w.drain()
	w.want("")
}

// Blobs, race 1: an existence check of a blob that is about to be deleted.
func TestGCRaceBlobHead(t *testing.T) {
	t.Run("review first", func(t *testing.T) {
		w := raceWorld(t)
		w.blob("r", "a")
		found := false
		var done <-chan error
		w.reviewBlobsStopped(afterVerify, func() {
			done = w.begin(func() error {
				return w.try(func(b *sqldb.Batch) {
					b.Query(func(row sqldb.Row) error { found = true; return row.Scan(new(string), new(int64)) }, keepBlob, w.digestOf("a"), "r")
				})
			})
		})
		if err := <-done; err != nil || found {
			t.Errorf("promised a blob that is gone: %v, %v", found, err)
		}
		w.drain()
		w.want("")
	})
	t.Run("check before the claim", func(t *testing.T) {
		w := raceWorld(t)
		w.blob("r", "a")
		commit := w.open(func(tx *sqldb.Tx) error { return exec(t.Context(), tx, keepBlob, w.digestOf("a"), "r") })
		if r, err := w.c.blobRows.RunOne(t.Context()); err != nil || r.Claimed != 0 {
			t.Errorf("claimed a blob that is being promised: %+v, %v", r, err)
		}
		commit()
		w.wantBlobQueue("a blob_upload 1440m")
		w.want("a")
	})
	t.Run("check before the blob is taken", func(t *testing.T) {
		w := raceWorld(t)
		w.blob("r", "a")
		committed := make(chan struct{})
		r := w.reviewBlobsStopped(afterHold, func() {
			commit := w.open(func(tx *sqldb.Tx) error { return exec(t.Context(), tx, keepBlob, w.digestOf("a"), "r") })
			go func() { // the review skips the blob, and waits only to settle
				defer close(committed)
				w.waiting()
				commit()
			}()
		})
		if <-committed; r.Left != 1 {
			t.Errorf("the review was settled: %+v", r)
		}
		w.wantBlobQueue("a blob_upload 1440m")
		w.want("a")
	})
	t.Run("check after the claim", func(t *testing.T) {
		w := raceWorld(t)
		w.blob("r", "a")
		r := w.reviewBlobsStopped(afterHold, func() {
			w.exec(keepBlob, w.digestOf("a"), "r")
			w.exec(`UPDATE gc_blob_review_queue SET review_after = $1`, w.now().Add(24*time.Hour).UnixMilli())
		})
		if r.Left != 1 {
			t.Errorf("the review was settled: %+v", r)
		}
		w.want("a")
	})
}

// Blobs, race 2: a manifest is pushed that uses a blob which is about to be
// deleted.
func TestGCRaceBlobUsed(t *testing.T) {
	m := image{repo: "r", name: "m", layers: []string{"a"}, tags: []string{"1"}}
	t.Run("review first", func(t *testing.T) {
		w := raceWorld(t)
		w.blob("r", "a")
		w.digestOf("m")
		var done <-chan error
		w.reviewBlobsStopped(afterVerify, func() {
			done = w.begin(func() error { var id int64; return w.tryPush(m, &id) })
		})
		if err := <-done; err == nil {
			t.Error("pushed a manifest whose blob is gone")
		}
		w.want("")
	})
	t.Run("push first", func(t *testing.T) {
		w := raceWorld(t)
		w.blob("r", "a")
		commit := w.open(func(tx *sqldb.Tx) error { var id int64; return w.sendPush(tx, m, &id) })
		if r := w.reviewBlobsStopped(afterVerify, func() {}); r.Postponed != 1 {
			t.Errorf("the review did not pass over a blob in use: %+v", r)
		}
		commit()
		w.drain()
		w.want("a; r@m:1")
	})
}

// Blobs, race 3: the last manifest that uses a blob is deleted after the review
// has seen it.
func TestGCRaceBlobReleased(t *testing.T) {
	w := raceWorld(t)
	w.push(image{repo: "r", name: "m", layers: []string{"a"}})
	r := w.reviewBlobsStopped(afterVerify, func() { w.deleteManifest("r", "m") })
	if r.Left != 1 {
		t.Errorf("the review was settled: %+v", r)
	}
	w.wantBlobQueue("a layer_delete 1440m")
	w.drain()
	w.want("")
}

// Blobs, race 4: a blob is removed from a repository while it is reviewed.
func TestGCRaceBlobUnlinked(t *testing.T) {
	w := raceWorld(t)
	w.blob("r", "a")
	var done <-chan error
	r := w.reviewBlobsStopped(afterDelete, func() {
		done = w.begin(func() error { return w.try(func(b *sqldb.Batch) { b.Exec(unlinkBlob, "r", w.digestOf("a")) }) })
	})
	if err := <-done; err != nil || r.Done != 1 {
		t.Errorf("unlink: %v; review: %+v", err, r)
	}
	w.drain()
	w.want("")
}

// Blobs, race 5: the same content is uploaded while its row is being deleted. It
// gets its own row and bytes.
func TestGCRaceBlobPushedAgain(t *testing.T) {
	for name, at := range map[string]int{"before delete": afterVerify, "after delete": afterDelete} {
		t.Run(name, func(t *testing.T) {
			w := raceWorld(t)
			w.blob("r", "a")
			first, second := w.paths["a"], w.bytes("a")
			var done <-chan error
			r := w.reviewBlobsStopped(at, func() {
				done = w.begin(func() error {
					return w.try(func(b *sqldb.Batch) {
						b.Exec(insertBlob, w.digestOf("a"), second, 1, 0, false)
						b.Exec(linkBlob, 1, w.repos["r"], w.digestOf("a"), 0)
					})
				})
			})
			if err := <-done; err != nil || r.Acted != 1 {
				t.Fatalf("push: %v; review: %+v", err, r)
			}
			w.wantBlobQueue("a blob_upload 1440m")
			w.wantUnlinkQueue("bytes-of-a blob_delete 2m")
			if _, err := w.c.unlinks.RunOne(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := w.raw(`SELECT path FROM blobs`); got != second || got == first {
				t.Errorf("the row names %s", got)
			}
			w.check()
		})
	}
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
		m := image{repo: "r", name: fmt.Sprint("m", i), config: layers[0], layers: layers[1:]}
		if i%3 == 2 {
			m.children = []string{"m0", "m1"}
		}
		if i > 1 { // the first two are children
			ids[i%2] = append(ids[i%2], w.push(m))
		} else {
			w.push(m)
		}
	}
	var running sync.WaitGroup
	for _, mine := range ids {
		running.Go(func() {
			for pair := range slices.Chunk(mine, 2) {
				err := w.try(func(b *sqldb.Batch) {
					b.Exec(orderDeletedManifests, pair)
					b.Exec(deleteManifestsPostgres, pair)
				})
				if err != nil {
					w.Error(err)
				}
			}
		})
	}
	running.Wait()
	w.drain()
	w.want("")
}
