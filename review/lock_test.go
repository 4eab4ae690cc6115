package review_test

import (
	"context"
	"testing"
	"time"

	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestHeldRowsAreNotTakenOver: on PostgreSQL a review that outlasts its lease
// keeps its tasks until its transaction ends, although they were enqueued again
// and look free. On SQLite another engine waits for the transaction itself.
func TestHeldRowsAreNotTakenOver(t *testing.T) {
	f := newFixture(t, dbtest.OpenDB(t, sqldb.Postgres))
	f.enqueue(0, "a", "b")
	other := f.engine(queue, by(func(review.Task) review.Verdict { return review.Kept() }), review.Options{})
	slow := f.engine(queue, by(func(task review.Task) review.Verdict {
		if task.Key == "a" {
			f.now = f.now.Add(time.Hour)
			if r := f.turn(other); r.Claimed != 0 {
				t.Errorf("another engine claimed what is under review: %+v", r)
			}
			f.enqueue(0, "a")
			if r := f.turn(other); r.Claimed != 0 {
				t.Errorf("another engine claimed what is under review and was enqueued again: %+v", r)
			}
		}
		return review.Kept()
	}), review.Options{})
	if got, want := f.turn(slow), (review.Result{Claimed: 2, Done: 1, Left: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := f.turn(other), (review.Result{Claimed: 1, Done: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestLockedRowMakesReviewWait: a writer that has locked the row FOR UPDATE is
// finished before the review looks.
func TestLockedRowMakesReviewWait(t *testing.T) {
	f := newFixture(t, dbtest.OpenDB(t, sqldb.Postgres))
	f.enqueue(0, "a")
	var b sqldb.Batch
	b.Exec(`INSERT INTO things (id, refs) VALUES ($1, 0)`, "a")
	send(t, f.db, &b)

	ctx := context.Background()
	writer, err := f.db.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Rollback()
	finished := make(chan error, 1)
	e := f.engine(queue, collector{}, review.Options{Transactor: func(ctx context.Context, fn func(review.Tx) error) error {
		b := sqldb.Batch{}
		b.Exec(`SELECT 1 FROM thing_reviews WHERE thing = $1 FOR UPDATE`, "a")
		b.Exec(`ALTER TABLE things DISABLE TRIGGER things_update_track`)
		b.Exec(`UPDATE things SET refs = 1 WHERE id = $1`, "a")
		if err := writer.Send(ctx, &b); err != nil {
			return err
		}
		tx, err := f.db.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		go func() { // when the review waits
			for {
				var waiting int64
				if _, err := f.db.Row(ctx, `SELECT count(*) FROM pg_locks WHERE NOT granted`, nil, &waiting); err != nil || waiting > 0 {
					finished <- writer.Commit(ctx)
					return
				}
			}
		}()
		if err := fn(tx); err != nil {
			return err
		}
		return tx.Commit(ctx)
	}})
	if got, want := f.turn(e), (review.Result{Claimed: 1, Done: 1}); got != want {
		t.Errorf("got %+v, want %+v: it looked before the writer was finished", got, want)
	}
	if err := <-finished; err != nil {
		t.Error(err)
	}
}
