package review_test

import (
	"context"
	"testing"
	"time"

	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestTakeOver: an engine leaves the claims of a live process alone, and reviews the
// claims of a dead process at once, long before the lease expires.
func TestTakeOver(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine), func(t *testing.T) {
			database := dbtest.Open(t, engine)
			f := newFixture(t, dbtest.Connect(t, database))
			other := dbtest.Connect(t, database)
			leave := dbtest.Appear(t, other)
			dbtest.Appear(t, f.db)
			f.enqueue(0, "a", "b")
			var b sqldb.Batch
			b.Exec(`UPDATE thing_reviews SET claim_token = $1, claim_until = $2`, other.Token(), f.now.Add(time.Hour).UnixMilli())
			send(t, other, &b)
			e := f.engine(queue, by(func(review.Task) review.Verdict { return review.Kept() }), review.Options{})
			if engine == sqldb.Postgres {
				if r := f.turn(e); r.Claimed != 0 {
					t.Errorf("claimed from a live process: %+v", r)
				}
				leave()
				if r := f.turn(e); r.Claimed != 0 {
					t.Errorf("asked again within the same second: %+v", r)
				}
				f.now = f.now.Add(time.Second)
				if r, want := f.turn(e), (review.Result{Claimed: 2, Done: 2}); r != want {
					t.Errorf("after the process was gone: %+v, want %+v", r, want)
				}
				return
			}
			// SQLite has one process at a time: the one before is gone.
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- e.Run(ctx) }()
			for n := 1; n > 0; {
				s, err := e.Stats(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				n = s.Depth
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
