package review_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
)

var errTest = errors.New("no")

func TestVerdicts(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ok := func(context.Context) error { return nil }
		verdicts := map[string]review.Verdict{
			"acted":              review.Acted(),
			"again":              review.Again(time.Minute),
			"again at once":      review.Again(-time.Hour),
			"effect":             review.Acted().Then(ok),
			"effect fails":       review.Acted().Then(func(context.Context) error { return errTest }),
			"effect panics":      review.Acted().Then(func(context.Context) error { panic("no") }),
			"effect, then again": review.Progressed(time.Minute).Then(ok),
			"failed":             review.Failed(errTest),
			"failed for nothing": review.Failed(nil),
			"failed has no then": review.Failed(errTest).Then(func(context.Context) error { t.Error("ran"); return nil }),
			"kept":               review.Kept(),
			"none":               {},
			"outside acted":      review.Outside(func(context.Context) review.Verdict { return review.Acted() }),
			"outside again":      review.Outside(func(context.Context) review.Verdict { return review.Again(time.Hour) }).Then(ok),
			"outside failed":     review.Outside(func(context.Context) review.Verdict { return review.Failed(errTest) }),
			"outside panics":     review.Outside(func(context.Context) review.Verdict { panic("no") }),
			"outside twice":      review.Outside(func(context.Context) review.Verdict { return review.Acted().Then(ok) }),
			"two effects":        review.Kept().Then(ok).Then(func(context.Context) error { return errTest }).Then(func(context.Context) error { t.Error("ran"); return nil }),
		}
		for key := range verdicts {
			f.enqueue(0, key)
		}
		e := f.engine(queue, by(func(task review.Task) review.Verdict { return verdicts[task.Key] }), review.Options{})
		f.now = f.now.Add(10 * time.Second)
		got := f.turn(e)
		want := review.Result{Claimed: 18, Done: 4, Postponed: 4, Failed: 10, Acted: 4}
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		f.want(
			"again due 70 count 0 test created 0 error -",
			"again at once due 10 count 0 test created 0 error -",
			"effect fails due 11 count 1 test created 0 error effect: no",
			"effect panics due 11 count 1 test created 0 error effect: panic: no",
			"effect, then again due 70 count 0 test created 0 error -",
			"failed due 11 count 1 test created 0 error no",
			"failed for nothing due 11 count 1 test created 0 error the review failed and gave no reason",
			"failed has no then due 11 count 1 test created 0 error no",
			"none due 11 count 1 test created 0 error the review returned no verdict",
			"outside again due 3610 count 0 test created 0 error -",
			"outside failed due 11 count 1 test created 0 error no",
			"outside panics due 11 count 1 test created 0 error effect: panic: no",
			"outside twice due 11 count 1 test created 0 error a verdict from Outside must not have an effect",
			"two effects due 11 count 1 test created 0 error effect: no",
		)
	})
}

// TestWithoutTransaction: a queue whose verdicts are all from Outside has no transaction before the effects, and loses no task that is
// enqueued again meanwhile.
func TestWithoutTransaction(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		verdicts := map[string]func(context.Context) review.Verdict{
			"acted":    func(context.Context) review.Verdict { return review.Acted() },
			"again":    func(context.Context) review.Verdict { return review.Again(time.Minute) },
			"enqueued": func(context.Context) review.Verdict { f.enqueue(time.Second, "enqueued"); return review.Kept() },
			"failed":   func(context.Context) review.Verdict { return review.Failed(errTest) },
			"panics":   func(context.Context) review.Verdict { panic("no") },
		}
		for key := range verdicts {
			f.enqueue(0, key)
		}
		q := queue
		q.Outside = true
		e := f.engine(q, outside(verdicts), review.Options{})
		want := review.Result{Claimed: 5, Done: 1, Postponed: 1, Failed: 2, Left: 1, Acted: 1}
		if got := f.turn(e); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		f.want(
			"again due 60 count 0 test created 0 error -",
			"enqueued due 0 count 0 test created 0 error -",
			"failed due 1 count 1 test created 0 error no",
			"panics due 1 count 1 test created 0 error effect: panic: no",
		)
	})
}

// outside is a reviewer whose verdicts are all from Outside.
type outside map[string]func(context.Context) review.Verdict

func (o outside) Review(_ context.Context, tx review.Tx, _ time.Time, tasks []review.Task) (verdicts []review.Verdict, err error) {
	if tx != nil {
		return nil, errors.New("there is a transaction")
	}
	for _, task := range tasks {
		verdicts = append(verdicts, review.Outside(o[task.Key]))
	}
	return verdicts, nil
}

// TestFailures: the backoff grows up to its maximum, and is reset by a success.
func TestFailures(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		q := queue
		q.Backoff = review.Backoff{Base: time.Second, Cap: 3 * time.Second}
		verdict := review.Failed(errTest)
		e := f.engine(q, by(func(review.Task) review.Verdict { return verdict }), review.Options{})
		f.enqueue(0, "a")
		for _, want := range []string{
			"a due 1 count 1 test created 0 error no",
			"a due 3 count 2 test created 0 error no",
			"a due 6 count 3 test created 0 error no",
			"a due 9 count 4 test created 0 error no",
		} {
			if r := f.turn(e); r.Failed != 1 {
				t.Fatalf("want a failure: %+v", r)
			}
			f.want(want)
			r := f.turn(e)
			if r.Claimed != 0 {
				t.Fatalf("claimed before it is due: %+v", r)
			}
			f.now = r.Next
		}
		verdict = review.Again(time.Second)
		f.turn(e)
		f.want("a due 10 count 0 test created 0 error -")
	})
}

func TestErrorText(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		long := strings.Repeat("ä", 5000)
		e := f.engine(queue, by(func(task review.Task) review.Verdict {
			if task.Key == "long" {
				return review.Failed(errors.New("x" + long))
			}
			return review.Failed(errors.New("nul \x00 and \xff"))
		}), review.Options{})
		f.enqueue(0, "long", "odd")
		f.turn(e)
		task, _, err := e.Get(t.Context(), "long")
		if err != nil || len(task.LastError) > 1000 || len(task.LastError) < 990 || !utf8.ValidString(task.LastError) {
			t.Errorf("%d bytes, %v: %q", len(task.LastError), err, task.LastError)
		}
		task, _, err = e.Get(t.Context(), "odd")
		if err != nil || task.LastError != "nul  and \uFFFD" {
			t.Errorf("%v: %q", err, task.LastError)
		}
	})
}

// TestClaimOrder: rows are claimed in the order in which they are due, a batch at a time.
func TestClaimOrder(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.enqueue(0, "d", "c")
		f.enqueue(-time.Second, "b")
		f.enqueue(-time.Minute, "z")
		f.enqueue(time.Second, "a")
		var batches []string
		q := queue
		q.Batch = 2
		e := f.engine(q, reviewFunc(func(_ context.Context, _ review.Tx, _ time.Time, tasks []review.Task) ([]review.Verdict, error) {
			var keys []string
			verdicts := make([]review.Verdict, len(tasks))
			for i, task := range tasks {
				keys = append(keys, task.Key)
				verdicts[i] = review.Kept()
			}
			slices.Reverse(tasks) // a reviewer may change its slice
			batches = append(batches, strings.Join(keys, " "))
			return verdicts, nil
		}), review.Options{})
		for range 2 {
			if r := f.turn(e); r.Claimed != 2 || r.Done != 2 {
				t.Fatalf("want two done: %+v", r)
			}
		}
		if r := f.turn(e); r.Claimed != 0 || !r.Next.Equal(f.now.Add(time.Second)) {
			t.Errorf("want the last one in a second: %+v", r)
		}
		if want := []string{"z b", "c d"}; !slices.Equal(batches, want) {
			t.Errorf("reviewed %q, want %q", batches, want)
		}
	})
}

// TestHalves: one failing task among many costs few transactions.
func TestHalves(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		for i := range 64 {
			f.enqueue(0, fmt.Sprintf("%02d", i))
		}
		calls := 0
		e := f.engine(queue, reviewFunc(func(ctx context.Context, tx review.Tx, _ time.Time, tasks []review.Task) ([]review.Verdict, error) {
			calls++
			verdicts := make([]review.Verdict, len(tasks))
			for i, task := range tasks {
				verdicts[i] = review.Acted()
				if task.Key == "41" {
					// On PostgreSQL this error aborts the whole transaction.
					var b sqldb.Batch
					b.Exec(`INSERT INTO things (id, refs) VALUES ($1, NULL)`, task.Key)
					return nil, tx.Send(ctx, &b)
				}
			}
			return verdicts, nil
		}), review.Options{})
		if got, want := f.turn(e), (review.Result{Claimed: 64, Done: 63, Failed: 1, Acted: 63}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if calls != 13 { // 64, then twice 32, 16, 8, 4, 2 and 1
			t.Errorf("%d reviews, want 13", calls)
		}
		task, found, err := e.Get(t.Context(), "41")
		if err != nil || !found || !strings.Contains(strings.ToLower(task.LastError), "null") {
			t.Errorf("the error of the statement is not kept: %+v, %v, %v", task, found, err)
		}
	})
}

func TestWrongNumberOfVerdicts(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.enqueue(0, "a")
		e := f.engine(queue, reviewFunc(func(context.Context, review.Tx, time.Time, []review.Task) ([]review.Verdict, error) {
			return []review.Verdict{review.Kept(), review.Kept()}, nil
		}), review.Options{})
		f.turn(e)
		f.want("a due 1 count 1 test created 0 error the review of 1 tasks came to 2 verdicts")
	})
}

// TestTransactorRepeats: a transactor may roll back and run the function again.
func TestTransactorRepeats(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.enqueue(0, "a", "b")
		tries := 0
		repeats := func(ctx context.Context, fn func(review.Tx) error) error {
			for {
				tries++
				tx, err := f.db.Begin(ctx)
				if err != nil {
					return err
				}
				err = fn(tx)
				if err != nil || tries < 3 {
					tx.Rollback()
					continue
				}
				return tx.Commit(ctx)
			}
		}
		e := f.engineIn(repeats, queue, by(func(review.Task) review.Verdict { return review.Acted() }), review.Options{})
		if got, want := f.turn(e), (review.Result{Claimed: 2, Done: 2, Acted: 2}); got != want || tries != 3 {
			t.Errorf("got %+v after %d tries, want %+v after 3", got, tries, want)
		}
		f.want()
	})
}

// TestNoEffectWhenEnqueuedAgain: the review may have read before the change that enqueued
// the task again.
func TestNoEffectWhenEnqueuedAgain(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.enqueue(0, "a")
		var e *review.Engine
		e = f.engine(queue, reviewFunc(func(ctx context.Context, tx review.Tx, now time.Time, tasks []review.Task) ([]review.Verdict, error) {
			var b sqldb.Batch
			e.Enqueue(&b, "a", "changed", now)
			effect := func(context.Context) error { t.Error("the effect ran"); return nil }
			return []review.Verdict{review.Acted().Then(effect)}, tx.Send(ctx, &b)
		}), review.Options{})
		if got, want := f.turn(e), (review.Result{Claimed: 1, Left: 1, Acted: 1}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		f.want("a due 0 count 0 changed created 0 error -")
	})
}

// corruptError is what SQLite returns for a damaged file.
type corruptError struct{}

func (corruptError) Error() string { return "database disk image is malformed (11)" }
func (corruptError) Code() int     { return 11 }

// TestCorruptDatabaseIsExplained: the log line of a review that finds a damaged
// database says what to do.
func TestCorruptDatabaseIsExplained(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		var log bytes.Buffer
		f.enqueue(0, "a")
		e := f.engine(queue, by(func(review.Task) review.Verdict { return review.Failed(corruptError{}) }),
			review.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		f.now = f.now.Add(10 * time.Second)
		f.turn(e)
		if !strings.Contains(log.String(), sqldb.CorruptAdvice) {
			t.Errorf("the log says %s", log.String())
		}
	})
}
