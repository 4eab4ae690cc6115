package feed

import (
	"fmt"
	"testing"

	"github.com/exeunt/exeunt/object"
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
		meanwhile func(*Feed)
		even      string // what a watcher of one kind from revision 4 is given
	}{
		"nothing was written":       {func(*Feed) {}, "[6 8 10]"},
		"something was written":     {func(f *Feed) { f.Add(changesOf(11, 14)) }, "[6 8 10 12 14]"},
		"the feed skipped":          {func(f *Feed) { f.Skip(20) }, "behind"},
		"the first was forgotten":   {func(f *Feed) { f.Add(changesOf(11, 30)) }, "behind"},
		"there is no room for all":  {func(f *Feed) { f.Add(changesOf(11, 19)) }, "behind"},
		"there is room for just it": {func(f *Feed) { f.Add(changesOf(11, 14)); f.opts.MaxEvents = 10 }, "[6 8 10 12 14]"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := New(Options{Revision: 10, MaxEvents: 12, MaxBytes: 1 << 20})
			if f.Begin() != 11 {
				t.Fatalf("begins at %d, want 11", f.Begin())
			}
			test.meanwhile(f)
			f.Fill(3, 10, changesOf(4, 10))
			c := f.Collect(&Request{Kind: "even"}, 4, 100)
			got := "behind"
			if !c.Behind {
				var revisions []int64
				for _, e := range c.Events {
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
