package review_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// start runs an engine until the test ends.
func start(t *testing.T, e *review.Engine) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

// signal is a reviewer that reports which tasks it reviewed.
func signal() (review.Reviewer[review.Tx], chan string) {
	seen := make(chan string, 100)
	return by(func(task review.Task) review.Verdict { seen <- task.Key; return review.Kept() }), seen
}

func receive(t *testing.T, seen chan string, want string) {
	t.Helper()
	select {
	case got := <-seen:
		if got != want {
			t.Fatalf("reviewed %s, want %s", got, want)
		}
	case <-time.After(dbtest.Patience):
		t.Fatalf("%s was not reviewed", want)
	}
}

// TestRun: an idle engine wakes up when the next task is due, and when Wake is called.
// Otherwise it would sleep for an hour.
func TestRun(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		q := queue
		q.Idle = time.Hour
		reviewer, seen := signal()
		e := f.engine(q, reviewer, review.Options{Now: time.Now})
		f.now = time.Now()
		f.enqueue(0, "now")
		f.enqueue(300*time.Millisecond, "soon")
		start(t, e)
		receive(t, seen, "now")
		receive(t, seen, "soon")
		f.enqueue(0, "woken")
		e.Wake()
		receive(t, seen, "woken")
	})
}

// TestGather: what becomes due within Gather of the begin of a turn is reviewed by the next one.
func TestGather(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		q := queue
		q.Gather = 300 * time.Millisecond
		reviewer, seen := signal()
		turns := &counted{Reviewer: reviewer}
		f.now = time.Now()
		f.enqueue(0, "a")
		f.enqueue(50*time.Millisecond, "b")
		f.enqueue(100*time.Millisecond, "c")
		start(t, f.engine(q, turns, review.Options{Now: time.Now}))
		for _, key := range []string{"a", "b", "c"} {
			receive(t, seen, key)
		}
		if n := turns.n.Load(); n > 2 {
			t.Errorf("%d turns", n)
		}
	})
}

// counted counts the turns of a reviewer.
type counted struct {
	review.Reviewer[review.Tx]
	n atomic.Int64
}

func (c *counted) Review(ctx context.Context, tx review.Tx, now time.Time, tasks []review.Task) ([]review.Verdict, error) {
	c.n.Add(1)
	return c.Reviewer.Review(ctx, tx, now, tasks)
}

// TestRunSurvives: Run retries after a database error.
func TestRunSurvives(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		reviewer, seen := signal()
		broken := 2
		e := f.engine(queue, reviewer, review.Options{Now: time.Now, Paused: func(context.Context) (bool, error) {
			if broken--; broken >= 0 {
				return false, errTest
			}
			return false, nil
		}})
		f.enqueue(0, "a")
		start(t, e)
		receive(t, seen, "a")
	})
}

func TestPaused(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		paused, broken := true, error(nil)
		e := f.engine(queue, by(func(review.Task) review.Verdict { return review.Kept() }), review.Options{
			Paused: func(context.Context) (bool, error) { return paused, broken },
		})
		f.enqueue(0, "a")
		if got, want := f.turn(e), (review.Result{Paused: true}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		broken = errTest
		if _, err := e.RunOne(t.Context()); !errors.Is(err, errTest) {
			t.Errorf("got %v, want %v", err, errTest)
		}
		f.want("a due 0 count 0 test created 0 error -")
		paused, broken = false, nil
		f.turn(e)
		f.want()
	})
}

// TestStop: a stopped engine releases its claims on rows that it has not settled,
// and does not increase their review_count.
func TestStop(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.enqueue(0, "a", "b")
		ctx, cancel := context.WithCancel(t.Context())
		e := f.engine(queue, reviewFunc(func(ctx context.Context, _ review.Tx, _ time.Time, _ []review.Task) ([]review.Verdict, error) {
			cancel()
			<-ctx.Done()
			return nil, ctx.Err()
		}), review.Options{})
		if _, err := e.RunOne(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
		f.want("a due 0 count 0 test created 0 error -", "b due 0 count 0 test created 0 error -")
	})
}

// TestStopInEffect: tasks whose effect ran are settled; the claims of the others are
// released.
func TestStopInEffect(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.enqueue(0, "a", "b", "c")
		ctx, cancel := context.WithCancel(t.Context())
		q := queue
		q.Effects = 1
		e := f.engine(q, by(func(task review.Task) review.Verdict {
			return review.Acted().Then(func(ctx context.Context) error {
				if task.Key == "b" {
					cancel()
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			})
		}), review.Options{})
		r, err := e.RunOne(ctx)
		if want := (review.Result{Claimed: 3, Done: 1, Left: 2, Acted: 1}); r != want || !errors.Is(err, context.Canceled) {
			t.Errorf("got %+v and %v, want %+v and %v", r, err, want, context.Canceled)
		}
		f.want("b due 0 count 0 test created 0 error -", "c due 0 count 0 test created 0 error -")
	})
}

// TestLeaseEndsInEffect: an effect that takes longer than the lease fails, and the
// effects after it do not run.
func TestLeaseEndsInEffect(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.enqueue(0, "a", "b")
		q := queue
		q.Effects, q.Lease = 1, 200*time.Millisecond
		e := f.engine(q, by(func(review.Task) review.Verdict {
			return review.Acted().Then(func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			})
		}), review.Options{})
		if got, want := f.turn(e), (review.Result{Claimed: 2, Failed: 1, Left: 1}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		f.want(
			"a due 1 count 1 test created 0 error effect: context deadline exceeded",
			"b due 0 count 0 test created 0 error - claimed until 0.2")
	})
}

// TestBrokenDatabase: if not even a failure can be written, RunOne returns an error and no
// task counts as failed.
func TestBrokenDatabase(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.enqueue(0, "a", "b")
		broken := func(context.Context, func(review.Tx) error) error {
			if err := f.db.Close(); err != nil {
				t.Error(err)
			}
			return errTest
		}
		e := f.engineIn(broken, queue, by(func(review.Task) review.Verdict { return review.Kept() }), review.Options{})
		if r, err := e.RunOne(t.Context()); err == nil || r.Failed != 0 {
			t.Errorf("got %+v and %v, want an error and no failed task", r, err)
		}
	})
}
