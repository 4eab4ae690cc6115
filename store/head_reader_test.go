package store

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestGetTogether forces the case that requests arrive while all queries run: one query answers
// all of them, and each gets its own object, or none. A request whose client is gone does not wait.
func TestGetTogether(t *testing.T) {
	s := run(t, Options{DB: dbtest.OpenDB(t, sqldb.Postgres)})
	made := map[string]object.Object{}
	for i := range 5 {
		name := fmt.Sprint(i)
		made[name] = create(t, s.Store, newRequest("a", name))
	}
	r := s.headReads
	r.mu.Lock()
	r.running = headQueries
	r.mu.Unlock()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Get(gone, made["0"].Key); err == nil {
		t.Error("a request whose client is gone was answered")
	}
	var asked sync.WaitGroup
	for _, name := range []string{"0", "1", "missing", "3", "4", "3"} {
		asked.Go(func() {
			o, err := s.Get(t.Context(), object.Key{Kind: things, Namespace: "a", Name: name})
			want, exists := made[name]
			if !exists {
				if !object.Is(err, object.NotFound) {
					t.Errorf("%s: %v, want NotFound", name, err)
				}
				return
			}
			if err != nil || line(o) != line(want) {
				t.Errorf("%s is %s, %v; want %s", name, line(o), err, line(want))
			}
		})
	}
	dbtest.Await(t, "7 requests wait", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.waiting) == 7
	})
	r.run()
	asked.Wait()
	if r.running != headQueries-1 {
		t.Errorf("%d queries run, want one less than before", r.running)
	}
}

// TestGetAlone forces the case that the shared queries hang: a request is answered by a query of
// its own.
func TestGetAlone(t *testing.T) {
	s := run(t, Options{DB: dbtest.OpenDB(t, sqldb.Postgres)})
	want := create(t, s.Store, newRequest("a", "one"))
	s.headReads.mu.Lock()
	s.headReads.running = headQueries // and none of them ends
	s.headReads.mu.Unlock()
	if o, err := s.Get(t.Context(), want.Key); err != nil || line(o) != line(want) {
		t.Errorf("%s, %v; want %s", line(o), err, line(want))
	}
}
