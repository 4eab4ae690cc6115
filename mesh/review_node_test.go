package mesh

import (
	"context"
	"testing"
	"time"

	"github.com/exeunt/exeunt/mesh/v1alpha1"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/review/reviewtest"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
)

// TestSuite: the reviewer passes what every reviewer passes. Garbage is a node
// whose object was taken away; what must be kept is a node that is not heard of
// and has been said not to be.
func TestSuite(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine), func(t *testing.T) {
			reviewtest.Run(t, func(t *testing.T) reviewtest.World { return newWorld(t, engine).suite() })
		})
	}
}

func (w *world) suite() reviewtest.World {
	n := 0
	next := func() enrolled {
		n++
		return w.enrol("node-" + string(rune('a'+n/26)) + string(rune('a'+n%26)))
	}
	names := map[string]enrolled{}
	exec := func(fill func(b *sqldb.Batch)) {
		w.Helper()
		var b sqldb.Batch
		fill(&b)
		if err := w.store.Transact(w.Context(), func(tx *store.Tx) error { return tx.Send(w.Context(), &b) }); err != nil {
			w.Fatal(err)
		}
	}
	return reviewtest.World{
		DB: w.db, Queue: queue, Reviewer: w.mesh,
		Transactor: func(ctx context.Context, fn func(review.Tx) error) error {
			return w.store.Transact(ctx, func(tx *store.Tx) error { return fn(tx) })
		},
		Garbage: func(t *testing.T) string {
			node := next()
			w.delete(node.Name)
			w.update(node.Name, func(o *v1alpha1.MeshNode) { o.Finalizers = nil })
			names[node.UID] = node
			return node.UID
		},
		Live: func(t *testing.T) string {
			node := next()
			exec(func(b *sqldb.Batch) {
				b.Exec(`UPDATE mesh_nodes SET last_seen = 1 WHERE uid = $1`, node.UID)
				b.Exec(setReady, node.UID, false)
				w.mesh.engine.Enqueue(b, node.UID, "heard", time.Unix(1, 0))
			})
			names[node.UID] = node
			return node.UID
		},
		Unknown:   "00000000-0000-4000-8000-000000000000",
		Collected: func(t *testing.T, key string) bool { return !w.registered(names[key].token) },
		Intact: func(t *testing.T, key string) bool {
			return w.registered(names[key].token) && w.object(names[key].Name) != nil
		},
	}
}

// TestNext is all that a review can decide.
func TestNext(t *testing.T) {
	now := time.Unix(1000, 0)
	const unreachable = 40 * time.Second
	fresh, silent := now.Add(-39*time.Second), now.Add(-40*time.Second)
	for _, c := range []struct {
		name  string
		facts facts
		do    step
		at    time.Time
	}{
		{"nothing there", facts{}, nothing, time.Time{}},
		{"an object that is not ours", facts{exists: true}, nothing, time.Time{}},
		{"its object is gone", facts{registered: true, ready: true, lastSeen: fresh}, forget, time.Time{}},
		{"heard of", facts{registered: true, exists: true, ready: true, lastSeen: fresh}, wait, now.Add(time.Second)},
		{"heard of again", facts{registered: true, exists: true, lastSeen: fresh}, sayReady, now.Add(time.Second)},
		{"not heard of", facts{registered: true, exists: true, ready: true, lastSeen: silent}, sayNotHeard, time.Time{}},
		{"not heard of, and said so", facts{registered: true, exists: true, lastSeen: silent}, nothing, time.Time{}},
		{"draining", facts{registered: true, exists: true, deleting: true, ready: true, lastSeen: fresh, deadline: now.Add(1)}, sayDraining, now.Add(1)},
		{"draining, not heard of", facts{registered: true, exists: true, deleting: true, ready: true, lastSeen: silent, deadline: now.Add(1)}, sayDraining, now.Add(1)},
		{"its time is over", facts{registered: true, exists: true, deleting: true, ready: true, lastSeen: fresh, deadline: now}, timeOut, time.Time{}},
		{"left, and kept by others", facts{exists: true, deleting: true, deadline: now}, nothing, time.Time{}},
		{"seen in the future", facts{registered: true, exists: true, ready: true, lastSeen: now.Add(time.Hour)}, wait, now.Add(time.Hour + unreachable)},
	} {
		if do, at := next(c.facts, now, unreachable); do != c.do || !at.Equal(c.at) {
			t.Errorf("%s: %d at %v; want %d at %v", c.name, do, at, c.do, c.at)
		}
	}
}
