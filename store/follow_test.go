package store

import (
	"context"
	"fmt"
	"testing"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// compacting makes a store that does not run. Its reads of the log come just after a
// compaction: after the read of the compacted revision and before that of the log.
// The log then has holes: of the changes only the first and the last are left.
func compacting(t *testing.T, db *sqldb.DB, fill func(behind *Store)) *Store {
	t.Helper()
	h := run(t, Options{DB: db})
	behind, err := Open(t.Context(), Options{DB: db})
	if err != nil {
		t.Fatal(err)
	}
	createNamespace(t, h.Store, "a")
	create(t, h.Store, newRequest("a", "stays"))
	o := create(t, h.Store, newRequest("a", "changes"))
	for range 5 {
		o = change(t, h.Store, o, "again")
	}
	behind.readLogged = func(ctx context.Context, r *WatchRequest, from, to int64) ([]*Event, int64, error) {
		if err := h.compact(ctx, h.Revision()-1); err != nil {
			return nil, 0, err
		}
		return behind.readChanges(ctx, r, from, to)
	}
	fill(behind)
	return behind
}

// TestCatchUpBesideCompaction: changes that were compacted while they were read
// are skipped, and a watcher is told so. It does not get a part of them.
func TestCatchUpBesideCompaction(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		var w *Watcher
		behind := compacting(t, db, func(behind *Store) {
			w = watch(t, behind, WatchRequest{From: behind.Revision()})
			if err := behind.catchUp(t.Context()); err != nil {
				t.Error(err)
			}
		})
		current, _, err := behind.revisions(t.Context())
		if err != nil || behind.Revision() != current {
			t.Errorf("at %d of %d, %v", behind.Revision(), current, err)
		}
		if events, _, err := w.Next(t.Context()); !object.Is(err, object.Expired) {
			t.Errorf("a watcher got %d events, %v: some are missing", len(events), err)
		}
	})
}

// TestWarmBesideCompaction: the feed does not begin with changes of which some
// were compacted while they were read.
func TestWarmBesideCompaction(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		behind := compacting(t, db, func(behind *Store) {
			current, _, err := behind.revisions(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			behind.feed.Skip(current)
			behind.warm(t.Context())
		})
		if first := behind.feed.Begin(); first != behind.Revision()+1 {
			t.Errorf("the feed begins at %d: it has holes", first)
		}
	})
}

// TestWarmStops: a start reads as many bytes of the log as the feed keeps, not all.
func TestWarmStops(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		h := run(t, Options{DB: db})
		for i := range 50 {
			createNamespace(t, h.Store, fmt.Sprint("n", i))
		}
		again, err := Open(context.Background(), Options{DB: db, RingBytes: 2_000})
		if err != nil {
			t.Fatal(err)
		}
		read := 0
		again.readLogged = func(ctx context.Context, r *WatchRequest, from, to int64) ([]*Event, int64, error) {
			events, upTo, err := again.readChanges(ctx, r, from, to)
			read += len(events)
			return events, upTo, err
		}
		again.warm(context.Background())
		if first := again.feed.Begin(); read == 0 || read > 40 || first > again.Revision() {
			t.Errorf("%d of 50 changes were read, and the feed begins at %d of %d", read, first, again.Revision())
		}
	})
}

// TestWarm: a store that is opened again has the newest changes in memory.
func TestWarm(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		h := run(t, Options{DB: db})
		for i := range 5 {
			createNamespace(t, h.Store, fmt.Sprint("n", i))
		}
		again, err := Open(context.Background(), Options{DB: db})
		if err != nil {
			t.Fatal(err)
		}
		if first := again.feed.Begin(); first != again.Revision()+1 {
			t.Fatalf("before it runs the feed begins at %d, want nothing in it", first)
		}
		again.warm(context.Background())
		if first := again.feed.Begin(); first != 1 {
			t.Errorf("the feed begins at %d, want 1", first)
		}
	})
}
