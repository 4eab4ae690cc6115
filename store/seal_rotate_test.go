package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store/seal"
)

// TestRotationThatCrashes ends the process before and after each step of a rotation. Every body opens
// afterwards, the next start goes back to the old key, and the start after it rotates again.
func TestRotationThatCrashes(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		s := run(t, Options{DB: db, Keys: testKeys(t, "a"), Archive: sealedOptions})
		createNamespace(t, s.Store, "shop")
		var last CreateRequest
		for i := range 2*resealStep + 3 {
			last = newSecret("shop", fmt.Sprint("s-", i), "horse-battery")
			create(t, s.Store, last)
		}
		s.stop()
		for step, whole := 0, false; !whole; step++ {
			for _, done := range []bool{false, true} {
				whole = rotateUntil(t, db, testKeys(t, "b", "a"), step, done)
				opens(t, db, testKeys(t, "a", "b"))
				if !rotateUntil(t, db, testKeys(t, "a", "b"), -1, false) {
					t.Fatal("the way back did not end")
				}
				awaitUnder(t, db, secrets, "a")
			}
		}
		rotateUntil(t, db, testKeys(t, "b", "a"), -1, false)
		s = run(t, Options{DB: db, Keys: testKeys(t, "b"), Archive: sealedOptions})
		wantBody(t, s.Store, last.Key, last.Body)
	})
}

var errCrash = errors.New("the process ends here")

// rotateUntil is a start with keys that ends at a step of the pass, which is done or not. It reports whether there were
// fewer steps.
func rotateUntil(t *testing.T, db *sqldb.DB, keys *seal.Keys, last int, done bool) (whole bool) {
	t.Helper()
	d := seal.Database{DB: db, Keys: keys, Logger: slog.New(slog.DiscardHandler), Every: time.Millisecond}
	if err := d.Register(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	leave := dbtest.Appear(t, db)
	defer leave()
	steps := 0
	err := d.Reseal(t.Context(), func(_ context.Context, step func() error) error {
		if steps++; steps-1 != last {
			return step()
		}
		if done {
			return errors.Join(step(), errCrash)
		}
		return errCrash
	})
	if err != nil && !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	return err == nil
}

// opens reads every body of secrets.
func opens(t *testing.T, db *sqldb.DB, keys *seal.Keys) {
	t.Helper()
	s, err := Open(t.Context(), Options{DB: db, Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	list, err := s.List(t.Context(), ListRequest{Kind: secrets})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for list.Next() {
		n++
	}
	if list.Err() != nil || n != 2*resealStep+3 {
		t.Fatalf("%d bodies open: %v", n, list.Err())
	}
}

// TestRotationOverReplicas restarts one replica after the other with a new first key, and back. All live replicas write
// and read Secrets at each moment.
func TestRotationOverReplicas(t *testing.T) {
	url := dbtest.Migrated(t, sqldb.Postgres)
	replica := func(keys ...string) running {
		t.Helper()
		return run(t, Options{DB: dbtest.Connect(t, url), Keys: testKeys(t, keys...), PollEvery: 20 * time.Millisecond})
	}
	db := dbtest.Connect(t, url)
	first, second := replica("a"), replica("a")
	createNamespace(t, first.Store, "shop")
	n := 0
	works := func() {
		t.Helper()
		for _, s := range []running{first, second} {
			n++
			o := create(t, s.Store, newSecret("shop", fmt.Sprint("s-", n), "horse-battery"))
			wantBody(t, first.Store, o.Key, o.Body)
			wantBody(t, second.Store, o.Key, o.Body)
		}
	}
	sealing := func(s running, key, next string, lacking int) {
		t.Helper()
		dbtest.Until(t, "the state of the rotation", func() error {
			r, err := s.Sealed().Progress(t.Context())
			if err != nil || r == nil || r.Sealing != key || r.Next != next || r.Lacking != lacking {
				return fmt.Errorf("%+v, %w", r, err)
			}
			return nil
		})
	}
	works()
	for _, to := range [][2]string{{"b", "a"}, {"a", "b"}} { // there and back
		first.stop()
		first = replica(to[0], to[1])
		if to[0] == "b" { // the second one does not have it
			sealing(first, "a", "b", 1)
			works()
			sealing(first, "a", "b", 1)
			second.stop()
			second = replica(to[0], to[1])
		}
		awaitUnder(t, db, secrets, to[0])
		works()
		sealing(first, to[0], "", 0)
	}
	for range 2 { // finish: the old key leaves one replica after the other
		second.stop()
		first, second = replica("a"), first
		works()
	}
}
