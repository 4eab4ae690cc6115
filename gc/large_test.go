package gc

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// lines collects a log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// ends returns the lines about large deletions.
func (l *lines) ends() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []string
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, "large deletion ended") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// TestLargeDeletion: the end of a large deletion is logged once, with what it was, who asked and
// how much it took: after a restart, by one of two replicas, for a namespace when the namespace
// is gone. A small one is not logged, nor one that goes on.
func TestLargeDeletion(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := newArchivingWorld(t, db, Options{Budget: 10, LargeDeletion: 30})
		log := &lines{}
		w.opts.Logger = slog.New(slog.NewTextHandler(log, nil))
		w.restart()
		w.addNamespace("default")
		w.addNamespace("n")
		w.add("small")
		w.children("small", 28)
		w.delete("small", background)
		w.drain()
		if got := log.ends(); len(got) != 0 {
			t.Fatalf("a deletion of 29 objects: %q", got)
		}

		w.add("a")
		w.children("a", 40)
		w.delete("a", background)
		w.turn()
		w.turn()
		if got := log.ends(); len(got) != 0 {
			t.Fatalf("it goes on: %q", got)
		}
		w.restart() // this process knows nothing of what was removed
		w.turn()
		other := w
		if db.Engine() == sqldb.Postgres {
			other = w.replica()
		}
		w.clock.advance(time.Second)
		other.drain()
		w.drain()
		got := log.ends()
		if len(got) != 1 || !strings.Contains(got[0], "namespace=n name=a ") || !strings.Contains(got[0], " removed=41 held=0 took=1s cascade="+string(w.uids["a"])) {
			t.Fatalf("the end of a: %q", got)
		}

		w.add("b")
		w.children("b", 40)
		w.delete("namespaces:/n", background)
		w.drain()
		got = log.ends()
		if len(got) != 2 || !strings.Contains(got[1], "kind=namespaces namespace=\"\" name=n ") {
			t.Fatalf("the end of namespace n: %q", got)
		}
	})
}
