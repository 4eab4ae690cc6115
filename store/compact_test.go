package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store/feed"
)

func TestCompactorNext(t *testing.T) {
	c := compactor{keepFor: time.Minute, keepRevisions: 100}
	start := time.Unix(1000, 0)
	for _, step := range []struct {
		after         time.Duration
		current, want int64
	}{
		{0, 10, 0},
		{30 * time.Second, 20, 0},
		{59 * time.Second, 30, 0},
		{60 * time.Second, 40, 10},  // what was newest a minute ago
		{119 * time.Second, 50, 30}, // the newest sample that is old enough
		{120 * time.Second, 300, 200},
		{121 * time.Second, 310, 210},
	} {
		if got := c.next(start.Add(step.after), step.current); got != step.want {
			t.Errorf("after %v at %d: compact to %d, want %d", step.after, step.current, got, step.want)
		}
	}
}

func TestCompact(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		kept := create(t, s.Store, newRequest("a", "kept"))
		changed := create(t, s.Store, newRequest("a", "changed"))
		gone := create(t, s.Store, newRequest("a", "gone"))
		changed = change(t, s.Store, changed, "1")
		changed = change(t, s.Store, changed, "2")
		remove(t, s.Store, gone.Key)
		point := s.Revision()
		atPoint, _, _ := list(t, s.Store, ListRequest{})
		last := change(t, s.Store, changed, "3")
		remove(t, s.Store, kept.Key)
		now, _, _ := list(t, s.Store, ListRequest{})

		behind, oneBehind := watch(t, s.Store, WatchRequest{}), watch(t, s.Store, WatchRequest{From: point - 1})
		if err := s.compact(t.Context(), point); err != nil {
			t.Fatal(err)
		}
		// What is left: the state at the point, and the two changes after it.
		if n := count(t, s.Store); n != len(atPoint)+2 {
			t.Errorf("%d changes are left", n)
		}
		if lines, _, _ := list(t, s.Store, ListRequest{}); !cmp.Equal(lines, now) {
			t.Errorf("the newest state has changed:\n%s", cmp.Diff(now, lines))
		}
		if lines, _, _ := list(t, s.Store, ListRequest{Revision: point}); !cmp.Equal(lines, atPoint) {
			t.Errorf("the state at the point has changed:\n%s", cmp.Diff(atPoint, lines))
		}
		_, err := s.List(t.Context(), ListRequest{Kind: things, Revision: point - 1})
		wantCode(t, err, object.Expired)
		_, err = s.Watch(t.Context(), WatchRequest{Kind: things, From: point - 1})
		wantCode(t, err, object.Expired)

		forget(s.feed)
		_, _, err = behind.Next(t.Context())
		wantCode(t, err, object.Expired)
		_, _, err = oneBehind.Next(t.Context()) // the removal at the point is forgotten
		wantCode(t, err, object.Expired)
		events, _, err := watch(t, s.Store, WatchRequest{From: point}).Next(t.Context())
		if err != nil || len(events) != 2 || string(events[0].Previous) != string(changed.Body) ||
			string(events[0].Object.Body) != string(last.Body) || string(events[1].Object.Body) != string(kept.Body) {
			t.Errorf("watch from the point: %+v, %v", events, err)
		}

		if err := s.compact(t.Context(), s.Revision()+100); err != nil {
			t.Fatal(err)
		}
		if n := count(t, s.Store); n != len(now) {
			t.Errorf("%d changes are left of %d objects", n, len(now))
		}
		if _, compacted, err := s.revisions(t.Context()); err != nil || compacted != s.Revision() {
			t.Errorf("compacted to %d of %d: %v", compacted, s.Revision(), err)
		}
	})
}

// forget empties the feed's memory.
func forget(f *feed.Feed) { f.Skip(f.Revision()) }

func count(t *testing.T, s *Store) (n int) {
	t.Helper()
	if err := s.db.Reader().QueryRow("SELECT count(*) FROM changes").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// compactStep is how many changes one transaction of a compaction takes: moveStep of package history.
const compactStep = 1000

// TestCompactInSteps compacts more than one step while others write.
func TestCompactInSteps(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		churn(t, s.Store, "before", 8, compactStep*3/16)
		point := s.Revision()
		if point < compactStep*5/4 {
			t.Fatalf("only %d revisions", point)
		}
		r := newReplay(t, 0)
		r.follow(watch(t, s.Store, WatchRequest{}), point)
		done := make(chan error)
		go func() { done <- s.compact(context.Background(), point) }()
		churn(t, s.Store, "during", 2, 30)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		forget(s.feed)
		r.follow(watch(t, s.Store, WatchRequest{From: point}), s.Revision())
		r.check(s.Store)
	})
}

// TestRunCompacts lets Run do it, by count and by age.
func TestRunCompacts(t *testing.T) {
	for name, o := range map[string]Options{
		"by count": {KeepRevisions: 5, CompactEvery: 10 * time.Millisecond},
		"by age":   {KeepFor: 30 * time.Millisecond, CompactEvery: 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
				o.DB = db
				s := run(t, o)
				object := create(t, s.Store, newRequest("a", "one"))
				for i := range 20 {
					object = change(t, s.Store, object, fmt.Sprint(i))
				}
				dbtest.Await(t, "6 changes are left", func() bool { return count(t, s.Store) <= 6 })
			})
		})
	}
}

// TestSpaceComesBack: the SQLite file shrinks after a deletion and its compaction.
func TestSpaceComesBack(t *testing.T) {
	s := run(t, Options{DB: dbtest.OpenDB(t, sqldb.SQLite)})
	workers(64, 4000, func(i int) {
		r := newRequest("a", fmt.Sprint(i))
		r.Body = bodyOf(r.Meta, filler)
		create(t, s.Store, r)
	})
	pages := func() (n int) {
		t.Helper()
		if err := s.db.Reader().QueryRow("PRAGMA page_count").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := pages()
	workers(64, 4000, func(i int) {
		remove(t, s.Store, object.Key{Kind: things, Namespace: "a", Name: fmt.Sprint(i)})
	})
	if err := s.compact(t.Context(), s.Revision()); err != nil {
		t.Fatal(err)
	}
	if err := s.tidy(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if after := pages(); after > before*2/3 {
		t.Errorf("%d pages before, %d after", before, after)
	}
	if size, err := s.db.LogSize(); err != nil || size != 0 {
		t.Errorf("the write-ahead log has %d bytes: %v", size, err)
	}
}

// TestMoveBehind: a compaction that is behind stops when its time is over. The rest stays in the log, with all versions, until
// the next ones move it.
func TestMoveBehind(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		s := run(t, Options{DB: db, CompactEvery: time.Hour, History: HistoryOptions{For: time.Hour}}).Store
		createNamespace(t, s, "a")
		all := make([]object.Object, 1500) // a step takes fewer
		workers(64, len(all), func(n int) { all[n-1] = create(t, s, newRequest("a", fmt.Sprint(n))) })
		workers(64, len(all), func(n int) { change(t, s, all[n-1], "later") })
		runs, moved, to := 0, int64(0), s.Revision()
		for ; moved < to; runs++ {
			if err := s.past.Move(t.Context(), to, 0); err != nil {
				t.Fatal(err)
			}
			if _, err := db.Row(t.Context(), `SELECT moved FROM revision`, nil, &moved); err != nil {
				t.Fatal(err)
			}
			for i := 0; i < len(all); i += 50 {
				n := 0
				err := s.Versions(t.Context(), all[i].Key, to+1, func(string, Version) bool { n++; return true })
				if err != nil || n != 2 {
					t.Fatalf("%s has %d versions at %d of %d: %v", all[i].Key, n, moved, to, err)
				}
			}
		}
		if runs < 2 {
			t.Errorf("all was moved in %d run", runs)
		}
		if old, large := s.past.Left(); old+large != 0 {
			t.Errorf("%d versions left", old+large)
		}
	})
}
