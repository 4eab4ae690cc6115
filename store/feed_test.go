package store

import (
	"context"
	"fmt"
	"testing"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// changesOf are changes of two kinds, in turns, at revisions from one to another.
func changesOf(from, to int64) (events []*Event) {
	for r := from; r <= to; r++ {
		e := &Event{Type: Created}
		e.Object = object.Object{Key: object.Key{Kind: []string{"even", "odd"}[r%2], Name: fmt.Sprint(r)}, Revision: r}
		events = append(events, e)
	}
	return events
}

// TestFeedFill: changes that a start reads from the log come before those that were
// written meanwhile; they are left out if there would be a gap.
func TestFeedFill(t *testing.T) {
	tests := map[string]struct {
		meanwhile func(*feed)
		even      string // what a watcher of one kind from revision 4 is given
	}{
		"nothing was written":       {func(*feed) {}, "[6 8 10]"},
		"something was written":     {func(f *feed) { f.add(changesOf(11, 14)) }, "[6 8 10 12 14]"},
		"the feed skipped":          {func(f *feed) { f.skip(20) }, "behind"},
		"the first was forgotten":   {func(f *feed) { f.add(changesOf(11, 30)) }, "behind"},
		"there is no room for all":  {func(f *feed) { f.add(changesOf(11, 19)) }, "behind"},
		"there is room for just it": {func(f *feed) { f.add(changesOf(11, 14)); f.maxEvents = 10 }, "[6 8 10 12 14]"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFeed(10, 12, 1<<20)
			if f.begin() != 11 {
				t.Fatalf("begins at %d, want 11", f.begin())
			}
			test.meanwhile(f)
			f.fill(3, 10, changesOf(4, 10))
			c := f.collect(f.topic("even"), &WatchRequest{Kind: "even"}, 4, 100)
			got := "behind"
			if !c.behind {
				var revisions []int64
				for _, e := range c.events {
					revisions = append(revisions, e.Object.Revision)
				}
				got = fmt.Sprint(revisions)
			}
			if got != test.even {
				t.Errorf("got %s, want %s", got, test.even)
			}
		})
	}
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
		if first := again.feed.begin(); first != again.Revision()+1 {
			t.Fatalf("before it runs the feed begins at %d, want nothing in it", first)
		}
		again.warm(context.Background())
		if first := again.feed.begin(); first != 1 {
			t.Errorf("the feed begins at %d, want 1", first)
		}
	})
}
