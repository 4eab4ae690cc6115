package gc

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/review/reviewtest"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestSuite is what every reviewer passes. Garbage is the dependents of an
// owner that is gone; live is an owner in foreground deletion whose dependent
// is held, which the review leaves alone.
func TestSuite(t *testing.T) {
	for _, engine := range dbtest.EnginesOf(t) {
		t.Run(string(engine), func(t *testing.T) {
			reviewtest.Run(t, func(t *testing.T) reviewtest.World {
				return suiteWorld(newWorld(t, dbtest.OpenDB(t, engine), Options{}))
			})
		})
	}
}

func suiteWorld(w *world) reviewtest.World {
	n := 0
	// left is what exists of the subject and its dependents.
	left := func(key string) string {
		name := w.named[types.UID(key)]
		var parts []string
		for _, part := range strings.Fields(w.state()) {
			if strings.HasPrefix(part, name) {
				parts = append(parts, part)
			}
		}
		return strings.Join(parts, " ")
	}
	reviewer, transactor := reviewtest.Plain(w.gc, w.store.Transact)
	return reviewtest.World{
		DB: w.db, Queue: queue, Reviewer: reviewer, Transactor: transactor,
		Garbage: func(*testing.T) string {
			n++
			name := fmt.Sprintf("garbage%03d", n)
			uid := w.add(name)
			w.add(name+"-b", owned(name))
			w.add(name+"-c", owned(name+"-b"))
			w.delete(name, background)
			return string(uid)
		},
		Live: func(*testing.T) string {
			n++
			name := fmt.Sprintf("live%03d", n)
			uid := w.add(name)
			w.add(name+"-b", owned(name+"^"), finalizers(held))
			w.delete(name+"-b", background)
			w.delete(name, foreground)
			return string(uid)
		},
		Unknown:   "no-such-uid",
		Collected: func(_ *testing.T, key string) bool { return left(key) == "" },
		Intact: func(_ *testing.T, key string) bool {
			name := w.named[types.UID(key)]
			want := fmt.Sprintf("%s!(foregroundDeletion) %s-b!(%s)<%s", name, name, held, name)
			if strings.HasPrefix(name, "garbage") {
				want = fmt.Sprintf("%s-b<%s %s-c<%s-b", name, name, name, name)
			}
			return left(key) == want
		},
	}
}
