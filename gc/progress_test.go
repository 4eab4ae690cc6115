package gc

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// told returns the messages of the progress Events, with their counts.
func (w *world) told() string {
	w.Helper()
	var all []string
	for _, e := range w.events() {
		if e.Reason == "CascadeProgress" {
			all = append(all, fmt.Sprintf("%s in %s ×%d: %s", e.InvolvedObject.Name, e.Namespace, e.Count, e.Message))
		}
	}
	return strings.Join(all, "; ")
}

// TestProgress: a cascade of several transactions reports its progress in one Event,
// at most every few seconds, and at its end. A cascade of one transaction writes no
// Event.
func TestProgress(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := newWorld(t, db, Options{Budget: 10})
		w.archiveFor = time.Hour
		w.restart()
		w.addNamespace("default")
		w.addNamespace("n")
		w.add("small")
		w.children("small", 5)
		w.delete("small", background)
		w.drain()
		if got := w.told(); got != "" {
			t.Fatalf("told of a small one: %s", got)
		}
		w.add("a")
		w.children("a", 40)
		w.delete("a", background)
		w.turn()
		if got := w.told(); got != "a in n ×1: 10 gone, 30 remaining" {
			t.Fatalf("got %q", got)
		}
		w.turn()
		if got := w.told(); got != "a in n ×1: 10 gone, 30 remaining" {
			t.Fatalf("told again at once: %q", got)
		}
		w.clock.Advance(progressEvery)
		w.turn()
		if got := w.told(); got != "a in n ×2: 30 gone, 10 remaining" {
			t.Fatalf("got %q", got)
		}
		w.drain()
		if got := w.told(); got != "a in n ×3: 40 gone, 0 remaining" {
			t.Fatalf("got %q", got)
		}
		w.want("namespaces:/default namespaces:/n")
	})
}

// TestProgressNamespace: the progress Event of a deleted namespace is in the namespace
// default, which stays.
func TestProgressNamespace(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := newWorld(t, db, Options{Budget: 10})
		w.archiveFor = time.Hour
		w.restart()
		w.addNamespace("default")
		w.addNamespace("n")
		for i := range 25 {
			w.add(fmt.Sprintf("x%d", i))
		}
		w.delete("namespaces:/n", background)
		w.turn()
		if got := w.told(); got != "n in default ×1: 10 gone, 15 remaining" {
			t.Fatalf("got %q", got)
		}
		w.drain()
		if got := w.told(); got != "n in default ×2: 25 gone, 0 remaining" {
			t.Fatalf("got %q", got)
		}
		w.want("namespaces:/default")
	})
}

// TestProgressWithoutArchive: without an archive the report does not count removed objects.
func TestProgressWithoutArchive(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := newWorld(t, db, Options{Budget: 10})
		w.addNamespace("n")
		w.add("a")
		w.children("a", 15)
		w.delete("a", foreground)
		w.turn()
		if got := w.told(); got != "a in n ×1: 5 remaining" {
			t.Fatalf("got %q", got)
		}
		w.drain()
		w.want("namespaces:/n")
	})
}
