package review_test

import (
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

func TestNewRefuses(t *testing.T) {
	db := dbtest.OpenDB(t, sqldb.SQLite)
	tests := []struct {
		name   string
		change func(q *review.Queue)
		want   string
	}{
		{"no name", func(q *review.Queue) { q.Name = "" }, `name ""`},
		{"a name for no label", func(q *review.Queue) { q.Name = "Big Things" }, `name "Big Things"`},
		{"no table", func(q *review.Queue) { q.Table = "" }, `"" is not the name of a table`},
		{"a statement as table", func(q *review.Queue) { q.Table = "a; DROP TABLE b" }, "is not the name of a table"},
		{"a statement as key", func(q *review.Queue) { q.Key = "a = a OR b" }, "is not the name of a table or column"},
		{"negative batch", func(q *review.Queue) { q.Batch = -1 }, "negative"},
		{"negative lease", func(q *review.Queue) { q.Lease = -1 }, "negative"},
		{"negative backoff", func(q *review.Queue) { q.Backoff.Base = -1 }, "negative"},
		{"base above cap", func(q *review.Queue) { q.Backoff = review.Backoff{Base: time.Hour, Cap: time.Minute} }, "above its cap"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := queue
			tt.change(&q)
			_, err := review.New(db, q, collector{}, review.Transactions(db), review.Options{})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
	if _, err := review.New(nil, queue, collector{}, review.Transactions(db), review.Options{}); err == nil {
		t.Error("an engine without a database")
	}
	if _, err := review.New(db, queue, nil, review.Transactions(db), review.Options{}); err == nil {
		t.Error("an engine without a reviewer")
	}
	q := queue
	q.Backoff.Base = 24 * time.Hour // above the default cap
	if _, err := review.New(db, q, collector{}, review.Transactions(db), review.Options{}); err != nil {
		t.Error(err)
	}
}

// TestEnqueue: the contract of Enqueue, which the triggers also implement.
func TestEnqueue(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		q := queue
		q.Batch = 1
		e := f.engine(q, by(func(review.Task) review.Verdict { return review.Failed(errTest) }), review.Options{})
		f.enqueue(0, "a")
		f.turn(e)
		f.want("a due 1 count 1 test created 0 error no")

		f.now = f.now.Add(500 * time.Millisecond)
		var b sqldb.Batch
		e.Enqueue(&b, "a", "later", f.now.Add(time.Hour))
		send(t, f.db, &b)
		f.want("a due 1 count 1 later created 0 error no")

		b = sqldb.Batch{}
		e.Enqueue(&b, "a", "sooner", f.now)
		send(t, f.db, &b)
		f.want("a due 0.5 count 1 sooner created 0 error no")

		f.turn(e) // the backoff goes on where it was
		f.want("a due 2.5 count 2 sooner created 0 error no")
	})
}

func TestGetAndStats(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		e := f.engine(queue, by(func(task review.Task) review.Verdict {
			if task.Key == "b" {
				return review.Failed(errTest)
			}
			return review.Kept()
		}), review.Options{})
		stats := func() review.Stats {
			s, err := e.Stats(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		if got := stats(); got != (review.Stats{}) {
			t.Errorf("of an empty queue: %+v", got)
		}
		start := f.now
		f.enqueue(0, "a", "b")
		f.enqueue(time.Hour, "c")
		if got, want := stats(), (review.Stats{Depth: 3, Overdue: 2, Oldest: start, Due: start}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		f.turn(e)
		want := review.Stats{Depth: 2, Failing: 1, Oldest: start, Due: start.Add(time.Second)}
		if got := stats(); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		task, found, err := e.Get(t.Context(), "b")
		wantTask := review.Task{Key: "b", Event: "test", Count: 1, Created: start, Due: start.Add(time.Second), LastError: "no"}
		if err != nil || !found || task != wantTask {
			t.Errorf("got %+v, %v, %v, want %+v", task, found, err, wantTask)
		}
		if task, found, err := e.Get(t.Context(), "a"); err != nil || found {
			t.Errorf("a is settled, but still in the queue: %+v, %v", task, err)
		}
	})
}
