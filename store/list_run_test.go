package store

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exeunt/exeunt/object"
)

// large creates objects of which a run holds three.
func large(t *testing.T, s *Store, n int) (all []object.Object) {
	t.Helper()
	for i := range n {
		r := newRequest("a", fmt.Sprintf("%02d", i))
		r.Body = bodyOf(r.Meta, strings.Repeat("x", runBytes/5*2))
		all = append(all, create(t, s, r))
	}
	return all
}

// TestListHoldsNoConnection begins more listings than there are connections, as
// clients do that never read their answer, and then needs all connections.
func TestListHoldsNoConnection(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		large(t, s.Store, 8)
		for range 20 {
			// The listing is never read to its end, so it is not cached.
			l, err := s.List(t.Context(), ListRequest{Kind: things, Match: func(*object.Object) (bool, error) { return true, nil }})
			if err != nil {
				t.Fatal(err)
			}
			if !l.Next() || l.last {
				t.Fatal("the listing has only one run, and could hold nothing")
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for range 8 { // all readers of SQLite
			tx, err := s.db.Snapshot(ctx)
			if err != nil {
				t.Fatalf("a listing holds a connection: %v", err)
			}
			defer tx.Close()
		}
	})
}

// TestListRunsAreOneSnapshot changes objects between the runs of a listing: it
// ends as it began, as of its revision.
func TestListRunsAreOneSnapshot(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		all := large(t, s.Store, 20)
		var want []string
		for _, o := range all {
			want = append(want, line(o))
		}
		l, err := s.List(t.Context(), ListRequest{Kind: things})
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for i := 0; l.Next(); i++ {
			lines = append(lines, line(l.Object()))
			switch {
			case i >= len(all):
				t.Fatalf("the listing goes on with %s", l.Object().Key)
			case i%3 == 0:
				remove(t, s.Store, all[len(all)-1-i].Key)
			case i%3 == 1:
				change(t, s.Store, all[len(all)-1-i], "later")
			default:
				create(t, s.Store, newRequest("a", fmt.Sprintf("%02d-later", len(all)-1-i)))
			}
		}
		if diff := cmp.Diff(want, lines); diff != "" || l.Err() != nil {
			t.Errorf("%v\n%.2000s", l.Err(), diff)
		}
	})
}

// TestListOvertakenByCompaction: a listing whose revision is compacted between two
// runs ends with an error, and never silently misses objects.
func TestListOvertakenByCompaction(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		all := large(t, s.Store, 8)
		l, err := s.List(t.Context(), ListRequest{Kind: things})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range all {
			change(t, s.Store, o, "later")
		}
		if err := s.compact(t.Context(), s.Revision()); err != nil {
			t.Fatal(err)
		}
		n := 0
		for l.Next() {
			n++
		}
		wantCode(t, l.Err(), object.Expired)
		if n == 0 || n == len(all) {
			t.Errorf("%d objects were listed before the error", n)
		}
	})
}

// TestListRunIsBounded: a run is cut by the size of its bodies, so that a client
// that does not read holds little.
func TestListRunIsBounded(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		all := large(t, s.Store, 30)
		l, err := s.List(t.Context(), ListRequest{Kind: things})
		if err != nil {
			t.Fatal(err)
		}
		size, n := 0, 0
		for _, o := range l.run[:cap(l.run)] {
			size += len(o.Body)
		}
		if most := runBytes + len(all[0].Body); size > most {
			t.Errorf("the first run holds %d bytes, want %d at most", size, most)
		}
		for l.Next() {
			n++
		}
		if n != len(all) || l.Err() != nil {
			t.Errorf("listed %d of %d: %v", n, len(all), l.Err())
		}
	})
}
