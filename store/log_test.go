package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestLogPages: a reader that takes the log page by page sees each change once,
// wherever a page ends: by number, by bytes, at the last change, one before and
// one after. Every second change is of a kind that the watch does not see.
func TestLogPages(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		const large = 3 // changes of 2 MiB: two of them fill a page
		from := s.Revision()
		if err := s.Transact(t.Context(), func(tx *Tx) error {
			for i := range 4*logEvents + large {
				r := newRequest("", fmt.Sprintf("thing-%d", i))
				if i%2 == 1 {
					r.Key.Kind = "others.example.com"
				}
				if i >= 4*logEvents {
					r.Key.Kind, r.Body = things, bodyOf(r.Meta, strings.Repeat("x", logBytes/2))
				}
				tx.Create(r.Key, &r.Meta, r.Body)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		check := func(r *WatchRequest, to int64, want []int64) {
			t.Helper()
			var got []int64
			for upTo := from; upTo < to; {
				events, next, err := s.readChanges(t.Context(), r, upTo, to)
				if err != nil {
					t.Fatal(err)
				}
				if next <= upTo || next > to {
					t.Fatalf("a page after %d, up to %d, ends at %d", upTo, to, next)
				}
				for _, e := range events {
					got = append(got, e.Object.Revision)
				}
				upTo = next
			}
			if !slices.Equal(got, want) {
				t.Errorf("changes up to %d of %+v: %d, want %d; got %v", to, r, len(got), len(want), got)
			}
		}
		for _, n := range []int64{1, logEvents - 1, logEvents, logEvents + 1, 2 * logEvents, 2*logEvents + 1, 4*logEvents + large} {
			var all, seen []int64
			for i := range n {
				all = append(all, from+1+i)
				if i%2 == 0 || i >= 4*logEvents {
					seen = append(seen, from+1+i)
				}
			}
			check(nil, from+n, all)
			check(&WatchRequest{Kind: things}, from+n, seen)
		}
		for _, n := range []int64{logEvents - 1, logEvents, logEvents + 1} { // that many changes of the watched kind
			var seen []int64
			for i := range n {
				seen = append(seen, from+1+2*i)
			}
			check(&WatchRequest{Kind: things}, from+2*n-1, seen)
			check(&WatchRequest{Kind: things}, from+2*n, seen)
		}
	})
}
