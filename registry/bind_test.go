package registry_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/registry/blobstore/s3test"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

func openMarked(t *testing.T, location string) blobstore.Marked {
	t.Helper()
	s, err := blobstore.Open(t.Context(), location)
	if err != nil {
		t.Fatal(err)
	}
	return s.(blobstore.Marked)
}

func belong(t *testing.T, db *sqldb.DB, s blobstore.Marked, accept bool) error {
	t.Helper()
	return registry.BindBlobStore(t.Context(), db, s, accept, slog.New(slog.DiscardHandler))
}

// belongs fails unless the store is accepted, now and at the next start.
func belongs(t *testing.T, db *sqldb.DB, s blobstore.Marked) {
	t.Helper()
	for range 2 {
		if err := belong(t, db, s, false); err != nil {
			t.Fatal(err)
		}
	}
}

// refused fails unless the store is refused and stays unchanged.
func refused(t *testing.T, db *sqldb.DB, s blobstore.Marked, want string) {
	t.Helper()
	before, err := s.Mark(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := belong(t, db, s, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("%v; want %q", err, want)
		}
	}
	if after, err := s.Mark(t.Context()); err != nil || after != before {
		t.Errorf("the store's id was %q and is %q (%v)", before, after, err)
	}
}

// eachStore runs a test with each engine and kind of store; place returns an
// empty store.
func eachStore(t *testing.T, test func(t *testing.T, db *sqldb.DB, place func() blobstore.Marked)) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		test(t, db, func() blobstore.Marked { return openMarked(t, filepath.Join(t.TempDir(), "blobs")) })
	})
	t.Run("S3", func(t *testing.T) {
		test(t, dbtest.OpenDB(t, sqldb.SQLite), func() blobstore.Marked { return openMarked(t, s3test.Location(t)) })
	})
}

// pushTo pushes a blob that is too large for the database.
func pushTo(t *testing.T, db *sqldb.DB, s blobstore.Store, content string) {
	t.Helper()
	newWorld(t, db, registry.Config{SmallBlobs: -1, Blobs: s}).push("a", content)
}

func TestBelong(t *testing.T) {
	eachStore(t, func(t *testing.T, db *sqldb.DB, place func() blobstore.Marked) {
		own, empty, foreign := place(), place(), place()
		belongs(t, db, own)
		belongs(t, dbtest.OpenDB(t, sqldb.SQLite), foreign)
		pushTo(t, db, own, "content")
		belongs(t, db, own)
		refused(t, db, empty, "it has no id, and once had")
		refused(t, db, foreign, "this blob store is not the one of this database")
		refused(t, dbtest.OpenDB(t, sqldb.SQLite), own, "this blob store is not the one of this database")
		if err := registry.CheckBlobStore(t.Context(), db, foreign); err == nil {
			t.Error("verify accepts the store of another database")
		}
		if err := errors.Join(registry.CheckBlobStore(t.Context(), db, own), registry.CheckBlobStore(t.Context(), db, empty)); err != nil {
			t.Error(err)
		}
		// With accept it takes the store over, and the former owner is refused.
		if err := belong(t, db, empty, true); err != nil {
			t.Fatal(err)
		}
		belongs(t, db, empty)
		if err := belong(t, db, foreign, true); err != nil {
			t.Fatal(err)
		}
		belongs(t, db, foreign)
	})
}

// TestBelongAdopts: a database and a store from before ids existed get one if
// they belong together.
func TestBelongAdopts(t *testing.T) {
	eachStore(t, func(t *testing.T, db *sqldb.DB, place func() blobstore.Marked) {
		own, empty := place(), place()
		pushTo(t, db, own, "content")
		refused(t, db, empty, "it has none of the blobs that were looked for")
		refused(t, dbtest.OpenDB(t, sqldb.SQLite), own, "it has bytes, and the database has no blobs")
		belongs(t, db, own)
	})
}

// failing is a store whose process dies before the id is written, or right after
// it.
type failing struct {
	blobstore.Marked
	before, after bool
}

var errCrash = errors.New("crash")

func (f failing) SetMark(ctx context.Context, id string, replace bool) error {
	if f.before {
		return errCrash
	}
	if err := f.Marked.SetMark(ctx, id, replace); err != nil {
		return err
	}
	if f.after {
		return errCrash
	}
	return nil
}

// TestBelongCrash: wherever the first start dies, the next one accepts its
// store, and no other.
func TestBelongCrash(t *testing.T) {
	eachStore(t, func(t *testing.T, db *sqldb.DB, place func() blobstore.Marked) {
		own, foreign := place(), place()
		belongs(t, dbtest.OpenDB(t, sqldb.SQLite), foreign)
		for _, crash := range []failing{{own, true, false}, {own, true, false}, {own, false, true}} {
			if err := belong(t, db, crash, false); !errors.Is(err, errCrash) {
				t.Fatalf("before %v, after %v: %v", crash.before, crash.after, err)
			}
			refused(t, db, foreign, "this blob store is not the one of this database")
		}
		belongs(t, db, own)
		refused(t, db, place(), "it has no id, and once had")
		// The same with accept.
		lost := place()
		for _, crash := range []failing{{lost, true, false}, {lost, false, true}} {
			if err := belong(t, db, crash, true); !errors.Is(err, errCrash) {
				t.Fatal(err)
			}
		}
		belongs(t, db, lost)
	})
}

// TestBelongTogether: replicas that start at the same time agree; of two
// databases with the same empty store, one gets it.
func TestBelongTogether(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		store, other := openMarked(t, filepath.Join(t.TempDir(), "blobs")), dbtest.OpenDB(t, sqldb.SQLite)
		errs := make([]error, 8)
		var group sync.WaitGroup
		for i := range errs {
			group.Go(func() {
				on := db
				if i%2 == 1 {
					on = other
				}
				errs[i] = registry.BindBlobStore(t.Context(), on, store, false, slog.New(slog.DiscardHandler))
			})
		}
		group.Wait()
		winners := map[bool]int{}
		for i, err := range errs {
			if err == nil {
				winners[i%2 == 1]++
			}
		}
		if len(winners) != 1 || winners[true]+winners[false] != 4 {
			t.Errorf("the store was given to %v: %v", winners, errs)
		}
	})
}
