package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// expiring runs a store whose Events live an hour; the test calls the expiry itself.
func expiring(t *testing.T, db *sqldb.DB, c *clock, ttl time.Duration) running {
	t.Helper()
	return run(t, Options{DB: db, Now: c.now, EventTTL: ttl, CompactEvery: time.Hour, Archive: day})
}

func newEvent(name string) CreateRequest {
	r := newRequest("a", name)
	r.Key.Kind = object.Events
	return r
}

func wantDue(t *testing.T, s *Store, want string) {
	t.Helper()
	if err := s.removeDue(t.Context()); err != nil {
		t.Fatal(err)
	}
	lines, _, _ := list(t, s, ListRequest{Kind: object.Events})
	if got := names(lines); got != want {
		t.Errorf("the events are %q, want %q", got, want)
	}
}

func expiries(t *testing.T, db *sqldb.DB) (n int) {
	t.Helper()
	if err := db.Reader().QueryRow(`SELECT count(*) FROM object_expiries`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestEventsExpire: an Event is removed an hour after its last write; watchers get the
// removal, the archive has no row, and other objects stay.
func TestEventsExpire(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		c := newClock()
		s := expiring(t, db, c, time.Hour)
		createNamespace(t, s.Store, "a")
		create(t, s.Store, newRequest("a", "stays"))
		from := s.Revision()
		old := create(t, s.Store, newEvent("old"))
		create(t, s.Store, newEvent("held"))
		renewed := create(t, s.Store, newEvent("renewed"))
		deleted := create(t, s.Store, newEvent("deleted"))
		remove(t, s.Store, deleted.Key)
		c.move(59 * time.Minute)
		change(t, s.Store, renewed, "again")
		create(t, s.Store, newEvent("young"))
		wantDue(t, s.Store, "a/held a/old a/renewed a/young")
		c.move(2 * time.Minute)
		wantDue(t, s.Store, "a/renewed a/young")
		if n := s.Expired(); n != 2 {
			t.Errorf("%d objects are counted, want 2", n)
		}
		after := newReplay(t, from)
		after.follow(watch(t, s.Store, WatchRequest{Kind: object.Events, From: from}), s.Revision())
		if _, there := after.objects[old.Key]; there || len(after.objects) != 2 {
			t.Errorf("watchers know %d events", len(after.objects))
		}
		if _, err := s.Get(t.Context(), old.Key); !object.Is(err, object.NotFound) {
			t.Errorf("get: %v", err)
		}
		wantRows(t, s.Store)
		c.move(time.Hour)
		wantDue(t, s.Store, "")
		if n := expiries(t, db); n != 0 {
			t.Errorf("%d expiries are left", n)
		}
		if lines, _, _ := list(t, s.Store, ListRequest{}); names(lines) != "a/stays" {
			t.Errorf("things: %v", lines)
		}
	})
}

// TestExpiryInSteps: more than a step, written by the collector's transaction,
// some of them in sets; a restart forgets none.
func TestExpiryInSteps(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		c := newClock()
		s := expiring(t, db, c, time.Hour)
		createNamespace(t, s.Store, "a")
		var made []*Stored
		err := s.Transact(t.Context(), func(tx *Tx) error {
			for i := range 2*ttlStep + 1 {
				r := newEvent(fmt.Sprintf("e-%04d", i))
				tx.Create(r.Key, &r.Meta, r.Body)
				if i < minSet+1 {
					made = append(made, &Stored{Object: object.Object{Key: r.Key}})
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		c.move(30 * time.Minute)
		rewriteAll(t, s.Store, made, "renewed")
		s.stop()
		again := expiring(t, db, c, time.Hour)
		c.move(31 * time.Minute)
		if err := again.removeDue(t.Context()); err != nil {
			t.Fatal(err)
		}
		lines, _, _ := list(t, again.Store, ListRequest{Kind: object.Events})
		if len(lines) != len(made) || again.Expired() != int64(2*ttlStep+1-len(made)) {
			t.Errorf("%d events are left, %d were counted", len(lines), again.Expired())
		}
	})
}

// TestExpiryOutlivesItsObject: the expiry row of an object that a cascade removed
// stays until it is due, and has no effect.
func TestExpiryOutlivesItsObject(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		c := newClock()
		s := expiring(t, db, c, time.Hour)
		createNamespace(t, s.Store, "a")
		var all []*Stored
		for i := range minSet + 1 {
			all = append(all, &Stored{Object: create(t, s.Store, newEvent(fmt.Sprint("e-", i)))})
		}
		rewriteAll(t, s.Store, all, "x")
		err := s.Transact(t.Context(), func(tx *Tx) error {
			for _, o := range all {
				tx.Remove(o)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		create(t, s.Store, newEvent("e-0")) // the name again, another object
		revision := s.Revision()
		c.move(61 * time.Minute)
		change(t, s.Store, mustGet(t, s.Store, newEvent("e-0").Key), "renewed")
		wantDue(t, s.Store, "a/e-0")
		if s.Expired() != 0 || s.Revision() != revision+1 || expiries(t, db) != 1 {
			t.Errorf("%d were counted, %d revisions, %d rows", s.Expired(), s.Revision()-revision, expiries(t, db))
		}
	})
}

func mustGet(t *testing.T, s *Store, key object.Key) object.Object {
	t.Helper()
	o, err := s.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestExpiryOnTwoReplicas: both replicas expire at once, and each Event is removed once.
func TestExpiryOnTwoReplicas(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		if db.Engine() != sqldb.Postgres {
			return // SQLite has one process
		}
		c := newClock()
		a, b := expiring(t, db, c, time.Hour), expiring(t, db, c, time.Hour)
		createNamespace(t, a.Store, "a")
		for i := range 50 {
			create(t, a.Store, newEvent(fmt.Sprint("e-", i)))
		}
		c.move(2 * time.Hour)
		done := make(chan error)
		for _, s := range []running{a, b} {
			go func() { done <- s.removeDue(t.Context()) }()
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if n := a.Expired() + b.Expired(); n != 50 {
			t.Errorf("%d removals of 50 events", n)
		}
	})
}

// TestEventsStayWithoutTTL: 0 keeps them.
func TestEventsStayWithoutTTL(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		c := newClock()
		s := expiring(t, db, c, 0)
		createNamespace(t, s.Store, "a")
		create(t, s.Store, newEvent("e"))
		c.move(1000 * time.Hour)
		wantDue(t, s.Store, "a/e")
	})
}
