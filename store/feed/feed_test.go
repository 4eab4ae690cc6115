package feed

import (
	"context"
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

// TestFeedBefore: what a start reads for the feed are the newest changes without a hole, as many as the feed keeps and not
// all that there are, also if each read stops early.
func TestFeedBefore(t *testing.T) {
	for name, test := range map[string]struct {
		keeps    int // bytes
		body     int // of each change
		from, to int64
	}{
		"all":       {16 << 20, 1, 7, 7}, // back to the floor
		"some":      {200 << 10, 1 << 10, 3_300, 3_900},
		"no change": {200 << 10, 0, 7, 7},
	} {
		f := New(Options{Revision: 4_000, MaxEvents: 5_000, MaxBytes: test.keeps})
		read := func(_ context.Context, _ *Request, from, to int64) ([]*Event, int64, error) {
			to = min(to, from+50)
			events := changesOf(from+1, to)
			for _, e := range events {
				e.Object.Body = make([]byte, test.body)
			}
			if test.body == 0 {
				events = nil
			}
			return events, to, nil
		}
		from, events, err := f.Before(t.Context(), 7, 4_000, read)
		if err != nil || from < test.from || from > test.to {
			t.Errorf("%s: back to %d, %v, want %d to %d", name, from, err, test.from, test.to)
		}
		for i, e := range events {
			if e.Object.Revision != from+1+int64(i) {
				t.Fatalf("%s: a hole before revision %d", name, e.Object.Revision)
			}
		}
		if test.body > 0 && from+int64(len(events)) != 4_000 {
			t.Errorf("%s: %d changes after %d", name, len(events), from)
		}
	}
}
