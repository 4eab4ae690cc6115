package store

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exeunt/exeunt/object"
)

// readPages lists in pages and calls between after each but the last. It says how many pages the
// cache answered.
func readPages(t *testing.T, s *Store, namespace string, limit int, between func()) (lines []string, pages, fromCache int) {
	t.Helper()
	r := ListRequest{Kind: things, Namespace: namespace, Limit: limit}
	for {
		l, err := s.List(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if pages++; l.fromCache {
			fromCache++
		}
		if r.Revision == 0 {
			lines = append(lines, fmt.Sprint("at ", l.Revision()))
		} else if l.Revision() != r.Revision {
			t.Fatalf("a page is of revision %d, the first one of %d", l.Revision(), r.Revision)
		}
		var last object.Object
		for l.Next() {
			last = l.Object()
			lines = append(lines, line(last))
		}
		if l.Err() != nil {
			t.Fatal(l.Err())
		}
		if !l.More() {
			return lines, pages, fromCache
		}
		r.Revision, r.AfterNamespace, r.AfterName = l.Revision(), last.Namespace, last.Name
		between()
	}
}

// TestPagesFromCache: the pages of a list are those of one snapshot, whether the cache or the
// database answers, and whatever other clients write between two of them.
func TestPagesFromCache(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		random := rand.New(rand.NewPCG(5, 6))
		live := map[string]object.Object{}
		write := func() {
			name := fmt.Sprint(random.IntN(12))
			o, exists := live[name]
			switch {
			case !exists:
				live[name] = create(t, s.Store, newRequest("a", name))
			case random.IntN(3) > 0:
				live[name] = change(t, s.Store, o, fmt.Sprint(random.Int()))
			default:
				remove(t, s.Store, o.Key)
				delete(live, name)
			}
		}
		for range 10 {
			write()
		}
		served := 0
		for round := range 30 {
			for _, namespace := range []string{"", "a"} {
				s.listings.forget(listingKey{things, namespace})
				want, _ := listBy(t, s.Store, namespace)
				if round%3 == 0 {
					s.listings.forget(listingKey{things, namespace}) // the pages record
				}
				got, _, fromCache := readPages(t, s.Store, namespace, 1+random.IntN(5), func() {
					if random.IntN(3) == 0 {
						write()
					}
					if random.IntN(3) == 0 {
						listBy(t, s.Store, namespace) // moves the cached listing on
					}
				})
				served += fromCache
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("namespace %q, round %d: the pages differ from the list:\n%s", namespace, round, diff)
				}
			}
		}
		if served == 0 {
			t.Error("the cache answered no page")
		}
	})
}

// TestPagesAreRecorded: once a client has read all pages, the next one gets them from the cache.
func TestPagesAreRecorded(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		for i := range 7 {
			create(t, s.Store, newRequest("a", fmt.Sprint(i)))
		}
		first, pages, fromCache := readPages(t, s.Store, "a", 3, func() {})
		if pages != 3 || fromCache != 0 {
			t.Fatalf("%d pages, %d of them from the cache, want 3 and 0", pages, fromCache)
		}
		again, _, fromCache := readPages(t, s.Store, "a", 2, func() {})
		if fromCache != 4 || !slices.Equal(first, again) {
			t.Errorf("%d pages from the cache, want 4: %q", fromCache, again)
		}
		l, err := s.List(t.Context(), ListRequest{Kind: things, Namespace: "a", Limit: 2})
		if err != nil {
			t.Fatal(err)
		}
		for l.Next() {
		}
		if left, known := l.Left(); !known || left != 5 {
			t.Errorf("%d objects are left (known: %v), want 5", left, known)
		}
		if len(s.listings.begun.slots) != 0 {
			t.Errorf("%d lists are still being recorded", len(s.listings.begun.slots))
		}
	})
}
