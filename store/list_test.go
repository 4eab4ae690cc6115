package store

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exeunt/exeunt/object"
)

func TestListOrderAndFilters(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		// The last but one would come elsewhere in most collations.
		for _, key := range [][2]string{{"b", "x"}, {"a", "z"}, {"", "x"}, {"a", "B"}, {"a", "a-b"}, {"a", "a.b"}, {"a", "ab"}, {"B", "x"}} {
			create(t, s.Store, newRequest(key[0], key[1]))
		}
		other := newRequest("a", "other")
		other.Key.Kind = "others"
		create(t, s.Store, other)
		for _, test := range []struct {
			name string
			r    ListRequest
			want string
		}{
			{"all", ListRequest{}, "/x B/x a/B a/a-b a/a.b a/ab a/z b/x"},
			{"one namespace", ListRequest{Namespace: "a"}, "a/B a/a-b a/a.b a/ab a/z"},
			{"empty namespace", ListRequest{Namespace: "c"}, ""},
			{"one name everywhere", ListRequest{Name: "x"}, "/x B/x b/x"},
			{"one object", ListRequest{Namespace: "a", Name: "z"}, "a/z"},
			{"one object, after it", ListRequest{Namespace: "a", Name: "z", AfterNamespace: "a", AfterName: "z"}, ""},
			{"after", ListRequest{AfterNamespace: "a", AfterName: "a.b"}, "a/ab a/z b/x"},
			{"after, in a namespace", ListRequest{Namespace: "a", AfterNamespace: "a", AfterName: "a.b"}, "a/ab a/z"},
			{"after another namespace", ListRequest{Namespace: "a", AfterNamespace: "b", AfterName: "a"}, ""},
			{"before another namespace", ListRequest{Namespace: "a", AfterNamespace: "B", AfterName: "x"}, "a/B a/a-b a/a.b a/ab a/z"},
			{"another kind", ListRequest{Kind: "others"}, "a/other"},
			{"no such kind", ListRequest{Kind: "none"}, ""},
			{"the largest limit", ListRequest{Limit: math.MaxInt}, "/x B/x a/B a/a-b a/a.b a/ab a/z b/x"},
			{"the largest limit of nothing", ListRequest{Namespace: "c", Limit: math.MaxInt}, ""},
		} {
			lines, revision, more := list(t, s.Store, test.r)
			if got := names(lines); got != test.want || more || revision != s.Revision() {
				t.Errorf("%s: got %q at %d, more %v", test.name, got, revision, more)
			}
		}
		for _, bad := range []ListRequest{{}, {Kind: things, Limit: -1}, {Kind: things, Revision: -1}} {
			_, err := s.List(t.Context(), bad)
			wantCode(t, err, object.BadRequest)
		}
	})
}

func TestListLimit(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		for i := range 6 {
			create(t, s.Store, newRequest("a", fmt.Sprint(i)))
		}
		odd := func(o *object.Object) (bool, error) {
			if !bytes.Contains(o.Body, []byte(o.Name)) {
				t.Errorf("body of %s is %s", o.Name, o.Body)
			}
			return (o.Name[0]-'0')%2 == 1, nil
		}
		for _, test := range []struct {
			name string
			r    ListRequest
			want string
			more bool
		}{
			{"cut", ListRequest{Limit: 4}, "a/0 a/1 a/2 a/3", true},
			{"exactly", ListRequest{Limit: 6}, "a/0 a/1 a/2 a/3 a/4 a/5", false},
			{"match", ListRequest{Match: odd}, "a/1 a/3 a/5", false},
			{"match, cut", ListRequest{Match: odd, Limit: 2}, "a/1 a/3", true},
			{"match, exactly", ListRequest{Match: odd, Limit: 3}, "a/1 a/3 a/5", false},
			{"match, rest", ListRequest{Match: odd, Limit: 2, AfterNamespace: "a", AfterName: "3"}, "a/5", false},
		} {
			lines, _, more := list(t, s.Store, test.r)
			if got := names(lines); got != test.want || more != test.more {
				t.Errorf("%s: got %q, more %v", test.name, got, more)
			}
		}
	})
}

// TestListAt compares lists at every revision with what the list was when that
// revision was the newest, after creates, updates, removals and re-creations.
func TestListAt(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		random := rand.New(rand.NewPCG(1, 2))
		history := map[int64][]string{}
		live := map[object.Key]object.Object{}
		for range 60 {
			key := object.Key{Kind: things, Namespace: fmt.Sprint("n", random.IntN(2)), Name: fmt.Sprint(random.IntN(5))}
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
			lines, revision, _ := list(t, s.Store, ListRequest{})
			history[revision] = lines
		}
		for revision, want := range history {
			lines, got, _ := list(t, s.Store, ListRequest{Revision: revision})
			if diff := cmp.Diff(want, lines); diff != "" || got != revision {
				t.Fatalf("list at %d:\n%s", revision, diff)
			}
			if paged := listPages(t, s.Store, ListRequest{Revision: revision, Limit: 3}); !cmp.Equal(want, paged) {
				t.Fatalf("pages at %d:\n%s", revision, cmp.Diff(want, paged))
			}
			one, _, _ := list(t, s.Store, ListRequest{Revision: revision, Namespace: "n1", Name: "3"})
			if len(one) > 1 || len(one) == 1 && names(one) != "n1/3" {
				t.Fatalf("list of one object at %d: %q", revision, one)
			}
		}
		_, err := s.List(t.Context(), ListRequest{Kind: things, Revision: s.Revision() + 1})
		wantCode(t, err, object.TooLargeVersion)
	})
}

func listPages(t *testing.T, s *Store, r ListRequest) (lines []string) {
	t.Helper()
	r.Kind = things
	for {
		l, err := s.List(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		count := 0
		for l.Next() {
			count++
			lines = append(lines, line(l.Object()))
			r.AfterNamespace, r.AfterName = l.Object().Namespace, l.Object().Name
		}
		if l.Err() != nil || count > r.Limit || l.More() && count < r.Limit {
			t.Fatalf("page of %d, more %v: %v", count, l.More(), l.Err())
		}
		if !l.More() {
			return lines
		}
	}
}

// TestListIsASnapshot changes objects while a list is being read.
func TestListIsASnapshot(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		for i := range 4 {
			create(t, s.Store, newRequest("a", fmt.Sprint(i)))
		}
		want, _, _ := list(t, s.Store, ListRequest{})
		l, err := s.List(t.Context(), ListRequest{Kind: things})
		if err != nil {
			t.Fatal(err)
		}
		l.Next()
		lines := []string{line(l.Object())}
		remove(t, s.Store, object.Key{Kind: things, Namespace: "a", Name: "2"})
		create(t, s.Store, newRequest("a", "9"))
		for l.Next() {
			lines = append(lines, line(l.Object()))
		}
		if diff := cmp.Diff(want, lines); diff != "" || l.Err() != nil {
			t.Errorf("%v\n%s", l.Err(), diff)
		}
	})
}
