package review_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestActAndSettleAreOneTransaction: the effect of a review and the settled task become
// visible together. With two transactions, a crash between them would leave work that is
// done and a task that is not settled, or the opposite.
func TestActAndSettleAreOneTransaction(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		var b sqldb.Batch
		b.Exec(`INSERT INTO things (id, refs) VALUES ('a', 0)`)
		send(t, f.db, &b)
		f.enqueue(0, "a")
		e := f.engineIn(func(ctx context.Context, fn func(review.Tx) error) error {
			tx, err := f.db.Begin(ctx)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if err := fn(tx); err != nil {
				return err
			}
			if n := f.count("thing_reviews"); n != 1 {
				t.Errorf("before the commit other transactions see %d reviews", n)
			}
			if err := tx.Commit(ctx); err != nil {
				return err
			}
			if things, reviews := f.count("things"), f.count("thing_reviews"); things != 0 || reviews != 0 {
				t.Errorf("after the commit there are %d things and %d reviews", things, reviews)
			}
			return nil
		}, queue, collector{}, review.Options{})
		if r := f.turn(e); r.Done != 1 {
			t.Errorf("got %+v", r)
		}
	})
}

// count returns how many rows of a table other transactions see.
func (f *fixture) count(table string) int {
	f.Helper()
	return dbtest.NewSQL(f, f.db).Count(`SELECT count(*) FROM ` + table)
}

// TestReviewEndsWithItsLease: a review that hangs is cancelled when its lease expires.
// From then on another replica may take it over.
func TestReviewEndsWithItsLease(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.enqueue(0, "a")
		q := queue
		q.Lease = 50 * time.Millisecond
		hangs := reviewFunc(func(ctx context.Context, _ review.Tx, _ time.Time, _ []review.Task) ([]review.Verdict, error) {
			if until, ok := ctx.Deadline(); !ok || time.Until(until) > q.Lease {
				t.Errorf("the review may run until %v (%v)", until, ok)
			}
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(dbtest.Patience):
				return nil, errors.New("nothing cut the review off")
			}
		})
		if r := f.turn(f.engine(q, hangs, review.Options{})); r.Failed != 1 {
			t.Errorf("got %+v", r)
		}
		f.want("a due 1 count 1 test created 0 error context deadline exceeded")
	})
}
