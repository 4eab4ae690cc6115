package store

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// listBy lists and reports whether the cache answered.
func listBy(t *testing.T, s *Store, namespace string) (lines []string, fromCache bool) {
	t.Helper()
	l, err := s.List(t.Context(), ListRequest{Kind: things, Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	lines = append(lines, fmt.Sprint("at ", l.Revision()))
	for l.Next() {
		lines = append(lines, line(l.Object()))
	}
	if l.Err() != nil {
		t.Fatal(l.Err())
	}
	return lines, l.fromCache
}

// TestCachedListingEqualsDatabase makes random changes, and lists each
// time from the cache and, after dropping the cached listing, from the database.
func TestCachedListingEqualsDatabase(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		random := rand.New(rand.NewPCG(3, 4))
		live := map[object.Key]object.Object{}
		for round := range 40 {
			for range random.IntN(6) {
				key := object.Key{Kind: things, Namespace: fmt.Sprint("n", random.IntN(3)), Name: fmt.Sprint(random.IntN(6))}
				o, exists := live[key]
				switch {
				case !exists:
					live[key] = create(t, s.Store, newRequest(key.Namespace, key.Name))
				case random.IntN(2) == 0:
					live[key] = change(t, s.Store, o, fmt.Sprint(random.Int()))
				default:
					remove(t, s.Store, key)
					delete(live, key)
				}
			}
			for _, namespace := range []string{"", "n1"} {
				kept, _ := s.listings.get(listingKey{things, namespace})
				cached, fromCache := listBy(t, s.Store, namespace)
				if !fromCache && round > 0 {
					t.Fatal("the database was read although a listing was cached")
				}
				s.listings.forget(listingKey{things, namespace})
				read, fromCache := listBy(t, s.Store, namespace)
				if fromCache {
					t.Fatal("a dropped listing answered")
				}
				if diff := cmp.Diff(read, cached); diff != "" {
					t.Fatalf("namespace %q, round %d: the cached listing differs from the database:\n%s", namespace, round, diff)
				}
				if kept != nil {
					// Put the old listing back: it must apply the changes of several rounds.
					s.listings.forget(listingKey{things, namespace})
					s.listings.put(listingKey{things, namespace}, kept)
				}
			}
		}
	})
}

// TestCachedListingBehindFeed forces the case that the changes since the
// cached listing are no longer in memory.
func TestCachedListingBehindFeed(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		s := run(t, Options{DB: db, RingEvents: 4})
		for i := range 3 {
			create(t, s.Store, newRequest("a", fmt.Sprint(i)))
		}
		listBy(t, s.Store, "")
		for i := range 6 {
			create(t, s.Store, newRequest("b", fmt.Sprint(i)))
		}
		lines, fromCache := listBy(t, s.Store, "")
		if fromCache || len(lines) != 1+9 {
			t.Errorf("from cache: %v, %q", fromCache, lines)
		}
		if _, fromCache := listBy(t, s.Store, ""); !fromCache {
			t.Error("the list after it was not cached")
		}
	})
}

// TestCachedListingSeesOtherReplicas forces the interleaving that another
// replica has committed and this one's feed has not read the commit yet: the
// list must not be older than that commit.
func TestCachedListingSeesOtherReplicas(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		if db.Engine() == sqldb.SQLite {
			return // has one store at a time
		}
		a := run(t, Options{DB: db})
		create(t, a.Store, newRequest("a", "1"))
		// b does not run, so its feed does not move.
		b, err := Open(t.Context(), Options{DB: db})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		listBy(t, b, "")
		if _, fromCache := listBy(t, b, ""); !fromCache {
			t.Fatal("no listing was cached")
		}
		create(t, a.Store, newRequest("a", "2"))
		lines, fromCache := listBy(t, b, "")
		if fromCache || len(lines) != 1+2 {
			t.Errorf("from cache: %v, %q", fromCache, lines)
		}
	})
}

// TestCachedListingWithoutBodies forces the case that a body has left the cache.
func TestCachedListingWithoutBodies(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		o := create(t, s.Store, newRequest("a", "1"))
		create(t, s.Store, newRequest("a", "2"))
		want, _ := listBy(t, s.Store, "")
		s.bodies.mu.Lock()
		s.bodies.drop(o.Revision)
		s.bodies.mu.Unlock()
		got, fromCache := listBy(t, s.Store, "")
		if diff := cmp.Diff(want, got); diff != "" || fromCache {
			t.Errorf("from cache: %v\n%s", fromCache, diff)
		}
	})
}

func TestListingCacheIsBounded(t *testing.T) {
	r := newListingCache(12)
	for i := range 20 {
		r.put(listingKey{"k", fmt.Sprint(i)}, &cachedListing{revision: 1, entries: make([]entry, 3)})
		if _, found := r.get(listingKey{"k", "0"}); !found {
			t.Fatalf("a listing in use was evicted after %d others", i)
		}
	}
	if len(r.slots) != 3 || r.size != 12 {
		t.Errorf("%d listings that cost %d are kept", len(r.slots), r.size)
	}
	r.put(listingKey{"k", "0"}, &cachedListing{revision: 1, entries: make([]entry, 1)})
	if kept, _ := r.get(listingKey{"k", "0"}); len(kept.entries) != 3 {
		t.Errorf("a listing was replaced by one that is not newer, with %d entries", len(kept.entries))
	}
}
