package blobstoretest

import (
	"errors"
	"testing"
	"time"

	"github.com/exeunt/exeunt/registry/blobstore"
)

// testWalk is for stores that are Walkers. Every store here is one: the sweep
// must find bytes that the database does not know.
func testWalk(s *suite) {
	walker, ok := s.Store.(blobstore.Walker)
	if !ok {
		s.Fatalf("a %T cannot be walked", s.Store)
	}
	start := time.Now()
	want := map[string]int64{s.put("a"): 1, s.put("bb"): 2, s.put(""): 0}
	gone := s.put("gone")
	if err := s.Store.Remove(s.Context(), gone); err != nil {
		s.Fatal(err)
	}
	got := walk(s.T, walker)
	if len(got) != len(want) {
		s.Errorf("walked %v, want %v", got, want)
	}
	for path, size := range want {
		found, ok := got[path]
		if !ok || found.size != size || found.written.Before(start.Add(-time.Minute)) || found.written.After(time.Now().Add(time.Minute)) {
			s.Errorf("%s: %+v, want %d bytes of a moment ago", path, found, size)
		}
	}
	stop := errors.New("enough")
	calls := 0
	err := walker.Walk(s.Context(), func(string, int64, time.Time) error { calls++; return stop })
	if !errors.Is(err, stop) || calls != 1 {
		s.Errorf("walked on: %d calls, %v", calls, err)
	}
}

type found struct {
	size    int64
	written time.Time
}

func walk(t *testing.T, w blobstore.Walker) map[string]found {
	t.Helper()
	got := map[string]found{}
	err := w.Walk(t.Context(), func(path string, size int64, written time.Time) error {
		got[path] = found{size, written}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}
