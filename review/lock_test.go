package review_test

import (
	"context"
	"testing"
	"time"

	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestLease: other engines leave a claimed task alone until the lease expires. After a
// takeover the first engine does not review the task any more.
func TestLease(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.enqueue(0, "a", "b")
		other := f.engine(queue, by(func(review.Task) review.Verdict { return review.Again(time.Hour) }), review.Options{})
		overtaken := func(ctx context.Context, fn func(review.Tx) error) error {
			f.enqueue(0, "c")
			if got, want := f.turn(other), (review.Result{Claimed: 1, Postponed: 1}); got != want {
				t.Errorf("got %+v, want %+v: only c", got, want)
			}
			f.now = f.now.Add(time.Minute)
			if got, want := f.turn(other), (review.Result{Claimed: 2, Postponed: 2}); got != want {
				t.Errorf("got %+v, want %+v: a and b", got, want)
			}
			return transact(ctx, f.db, fn)
		}
		late := f.engineIn(overtaken, queue, by(func(task review.Task) review.Verdict {
			t.Errorf("%s was taken over, but the first engine reviewed it", task.Key)
			return review.Kept()
		}), review.Options{})
		if got, want := f.turn(late), (review.Result{Claimed: 2, Left: 2}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		f.want(
			"a due 3660 count 0 test created 0 error -",
			"b due 3660 count 0 test created 0 error -",
			"c due 3600 count 0 test created 0 error -")
	})
}

// TestHeldRowsAreNotTakenOver: on PostgreSQL a review that outlasts its lease keeps its
// tasks until its transaction ends, although they were enqueued again and look free. On
// SQLite another engine waits for the transaction itself.
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

// TestLockedRowMakesReviewWait: if a writer has locked the row FOR UPDATE, the review
// reads it after the writer commits.
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
	behindWriter := func(_ context.Context, fn func(review.Tx) error) error {
		b := sqldb.Batch{}
		b.Exec(`SELECT 1 FROM thing_reviews WHERE thing = $1 FOR UPDATE`, "a")
		b.Exec(`ALTER TABLE things DISABLE TRIGGER things_update_track`)
		b.Exec(`UPDATE things SET refs = 1 WHERE id = $1`, "a")
		if err := writer.Send(ctx, &b); err != nil {
			return err
		}
		go func() {
			waitForLock(ctx, f)
			finished <- writer.Commit(ctx)
		}()
		return transact(ctx, f.db, fn)
	}
	e := f.engineIn(behindWriter, queue, collector{}, review.Options{})
	if got, want := f.turn(e), (review.Result{Claimed: 1, Done: 1}); got != want {
		t.Errorf("got %+v, want %+v: the review read before the writer committed", got, want)
	}
	if err := <-finished; err != nil {
		t.Error(err)
	}
}

// TestSettleLocksInOrder: a writer that enqueues several tasks in key order cannot
// deadlock with a review that settles them, for any verdicts.
func TestSettleLocksInOrder(t *testing.T) {
	f := newFixture(t, dbtest.OpenDB(t, sqldb.Postgres))
	f.enqueue(0, "a", "b")
	ctx := context.Background()
	writer, err := f.db.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Rollback()
	finished := make(chan error, 1)
	transactions := 0
	counted := func(ctx context.Context, fn func(review.Tx) error) error {
		transactions++
		return transact(ctx, f.db, fn)
	}
	var e *review.Engine
	e = f.engineIn(counted, queue, reviewFunc(func(context.Context, review.Tx, time.Time, []review.Task) ([]review.Verdict, error) {
		var first, second sqldb.Batch
		e.Enqueue(&first, "a", "test", f.now)
		e.Enqueue(&second, "b", "test", f.now)
		if err := writer.Send(ctx, &first); err != nil {
			return nil, err
		}
		go func() {
			waitForLock(ctx, f)
			if err := writer.Send(ctx, &second); err != nil {
				finished <- err
				return
			}
			finished <- writer.Commit(ctx)
		}()
		return []review.Verdict{review.Kept(), review.Failed(errTest)}, nil
	}), review.Options{})
	if got, want := f.turn(e), (review.Result{Claimed: 2, Left: 2}); got != want || transactions != 1 {
		t.Errorf("got %+v after %d transactions, want %+v after one", got, transactions, want)
	}
	if err := <-finished; err != nil {
		t.Error(err)
	}
}

// waitForLock returns when a session waits for a lock.
func waitForLock(ctx context.Context, f *fixture) {
	for {
		var waiting int64
		_, err := f.db.Row(ctx, `SELECT count(*) FROM pg_locks WHERE NOT granted`, nil, &waiting)
		if err != nil {
			f.Errorf("read locks: %v", err)
		}
		if err != nil || waiting > 0 {
			return
		}
	}
}
