package store

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestReplicas has two stores write to one PostgreSQL database at once. The
// revisions are gapless and watchers of both see everything, in order. The poll
// is off: all must come by notification.
func TestReplicas(t *testing.T) {
	database := dbtest.Open(t, sqldb.Postgres)
	var stores [2]running
	var replays [2]*replay
	for i := range stores {
		stores[i] = run(t, Options{DB: dbtest.Connect(t, database), PollEvery: time.Hour})
		replays[i] = newReplay(t, 0)
	}
	var writers, watchers sync.WaitGroup
	const each = 400
	final := int64(1 + 2*each)
	for i := range stores {
		w := watch(t, stores[i].Store, WatchRequest{})
		watchers.Go(func() { replays[i].follow(w, final) })
		writers.Go(func() { churn(t, stores[i].Store, fmt.Sprint("store", i), 4, each/4) })
	}
	writers.Wait()
	watchers.Wait()
	for i, s := range stores {
		current, _, err := s.revisions(t.Context())
		if err != nil || current != final {
			t.Errorf("%d writes made revision %d: %v", 2*each, current, err)
		}
		if s.Revision() != final {
			t.Errorf("store %d has seen up to %d", i, s.Revision())
		}
		replays[i].check(s.Store)
	}
	if n := count(t, stores[0].Store); int64(n) != final-1 {
		t.Errorf("the log has %d changes", n)
	}
}

// TestReplicaFarBehind lets a store find more changes than it can hold, and
// changes that are partly compacted.
func TestReplicaFarBehind(t *testing.T) {
	database := dbtest.Open(t, sqldb.Postgres)
	busy := run(t, Options{DB: dbtest.Connect(t, database)})
	idle, err := Open(t.Context(), Options{DB: dbtest.Connect(t, database), RingEvents: 10})
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	idle.OnChange(func(events []*Event) {
		if events == nil {
			told++
		}
	})
	w := watch(t, idle, WatchRequest{})
	idle.heads.keep(object.Key{Kind: things, Namespace: "a", Name: "old"}, head{"u", 1}, idle.heads.epoch)
	churn(t, busy.Store, "far", 2, 20)
	if err := idle.catchUp(t.Context()); err != nil || idle.Revision() != busy.Revision() {
		t.Fatalf("at %d of %d: %v", idle.Revision(), busy.Revision(), err)
	}
	r := newReplay(t, 0)
	r.follow(w, busy.Revision())
	r.check(idle)
	if told != 1 || len(idle.heads.slots) > 0 {
		t.Errorf("after a gap those who follow were told %d times to read everything, and %d heads are kept", told, len(idle.heads.slots))
	}

	churn(t, busy.Store, "compacted", 1, 5)
	if err := busy.compact(t.Context(), busy.Revision()-2); err != nil {
		t.Fatal(err)
	}
	if err := idle.catchUp(t.Context()); err != nil || idle.Revision() != busy.Revision() {
		t.Fatalf("at %d of %d: %v", idle.Revision(), busy.Revision(), err)
	}
	if _, _, err := w.Next(t.Context()); err == nil {
		t.Error("a watcher was not told that it missed something")
	}
	if told != 2 {
		t.Errorf("after two gaps those who follow were told %d times to read everything", told)
	}
}

// TestReplicaWaitsForItsFeed: a client lists at one replica and watches from that
// revision at another, whose feed is behind. It gets no event that the list had,
// and every later one.
func TestReplicaWaitsForItsFeed(t *testing.T) {
	database := dbtest.Open(t, sqldb.Postgres)
	busy := run(t, Options{DB: dbtest.Connect(t, database)})
	behind, err := Open(t.Context(), Options{DB: dbtest.Connect(t, database)}) // it does not run: nothing moves its feed but us
	if err != nil {
		t.Fatal(err)
	}
	churn(t, busy.Store, "listed", 2, 10)
	listed := busy.Revision()
	if behind.Revision() >= listed {
		t.Fatalf("the replica is at %d of %d: this test proves nothing", behind.Revision(), listed)
	}
	w := watch(t, behind, WatchRequest{From: listed})
	var events []*Event
	done := make(chan error, 1)
	go func() {
		var err error
		for err == nil && len(events) == 0 {
			events, _, err = w.Next(t.Context())
		}
		done <- err
	}()
	if err := behind.catchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := create(t, busy.Store, newRequest("a", "after"))
	if err := behind.catchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || len(events) != 1 || line(events[0].Object) != line(after) {
		t.Errorf("watched %v, %v, want %s", events, err, line(after))
	}
}

// TestRecentMayBeOld: a replica that has not followed knows an old state. A read corrects it, and so does
// the log.
func TestRecentMayBeOld(t *testing.T) {
	database := dbtest.Open(t, sqldb.Postgres)
	busy := run(t, Options{DB: dbtest.Connect(t, database)})
	idle, err := Open(t.Context(), Options{DB: dbtest.Connect(t, database)}) // it does not run, so it does not follow
	if err != nil {
		t.Fatal(err)
	}
	first := create(t, busy.Store, newRequest("a", "recent"))
	knows := func(when string, want int64) {
		t.Helper()
		if o, known := idle.Recent(first.Key); o.Revision != want || known != (want != 0) {
			t.Errorf("%s: knows revision %d (%v), want %d", when, o.Revision, known, want)
		}
	}
	knows("before any read", 0)
	read := func() {
		t.Helper()
		if _, err := idle.Get(t.Context(), first.Key); err != nil {
			t.Fatal(err)
		}
	}
	read()
	second := change(t, busy.Store, first, "changed")
	knows("after a change elsewhere", first.Revision)
	read()
	knows("after a read", second.Revision)
	remove(t, busy.Store, first.Key)
	knows("after the removal elsewhere", second.Revision)
	if err := idle.catchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	knows("after the log was read", 0)
}
