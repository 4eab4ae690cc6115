package mesh

import (
	"strconv"
	"testing"
	"time"

	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
	"github.com/exeunt/exeunt/review/reviewtest"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
)

// TestSuite: the reviewer passes what every reviewer passes. Garbage is a node
// whose drain deadline has passed; live is a node that is already marked
// unreachable.
func TestSuite(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine), func(t *testing.T) {
			reviewtest.Run(t, func(t *testing.T) reviewtest.World { return newWorld(t, engine).suite() })
		})
	}
}

func (w *world) suite() reviewtest.World {
	w.clock.Advance(-time.Hour) // the suite's own clock is the present
	names := map[string]v1alpha1.Token{}
	reviewer, transactor := reviewtest.Plain(w.mesh, w.store.Transact)
	return reviewtest.World{
		DB: w.db, Queue: queue, Reviewer: reviewer, Transactor: transactor,
		Garbage: func(t *testing.T) string {
			n := w.insert(len(names), nil)
			w.delete(n.name)
			names[n.uid] = v1alpha1.Token{ID: n.token}
			return n.uid
		},
		Live: func(t *testing.T) string {
			n := w.insert(len(names), func(b *sqldb.Batch, n node) {
				b.Exec(setReady, n.uid, false, n.lastSeen)
				w.mesh.engine.Enqueue(b, n.uid, "heard", time.Unix(1, 0))
			})
			names[n.uid] = v1alpha1.Token{ID: n.token}
			return n.uid
		},
		Unknown:   "00000000-0000-4000-8000-000000000000",
		Collected: func(t *testing.T, key string) bool { return !w.registered(names[key]) && !w.exists(key) },
		Intact:    func(t *testing.T, key string) bool { return w.registered(names[key]) && w.exists(key) },
	}
}

// insert registers a node without the cost of a token's hash.
func (w *world) insert(i int, more func(b *sqldb.Batch, n node)) (n node) {
	w.Helper()
	name := "node-" + strconv.Itoa(i)
	err := w.store.Transact(w.Context(), func(tx *store.Tx) (err error) {
		now := w.clock.Now()
		var b sqldb.Batch
		b.Exec(insertToken, name, "shop", "", "no hash", now.UnixMilli(), "jo", now.UnixMilli())
		if err := tx.Send(w.Context(), &b); err != nil {
			return err
		}
		var denial *Denial
		n, denial, err = w.mesh.register(w.Context(), tx, application{
			token: token{id: name, project: "shop"}, now: now, request: request("", name),
		})
		if denial != nil {
			return denial
		}
		if err != nil || more == nil {
			return err
		}
		b = sqldb.Batch{}
		more(&b, n)
		return tx.Send(w.Context(), &b)
	})
	if err != nil {
		w.Fatal(err)
	}
	return n
}

func (w *world) exists(uid string) bool {
	w.Helper()
	return len(w.names(`SELECT name FROM objects WHERE uid = '`+uid+`'`)) > 0
}

// TestNext has a row for each decision of a review.
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
		{"fresh heartbeat", facts{registered: true, exists: true, ready: true, lastSeen: fresh}, wait, now.Add(time.Second)},
		{"heartbeat again", facts{registered: true, exists: true, lastSeen: fresh}, markReady, now.Add(time.Second)},
		{"no heartbeat", facts{registered: true, exists: true, ready: true, lastSeen: silent}, markUnreachable, time.Time{}},
		{"no heartbeat, already marked", facts{registered: true, exists: true, lastSeen: silent}, nothing, time.Time{}},
		{"draining", facts{registered: true, exists: true, deleting: true, ready: true, lastSeen: fresh, deadline: now.Add(1)}, markDraining, now.Add(1)},
		{"draining, no heartbeat", facts{registered: true, exists: true, deleting: true, ready: true, lastSeen: silent, deadline: now.Add(1)}, markDraining, now.Add(1)},
		{"its time is over", facts{registered: true, exists: true, deleting: true, ready: true, lastSeen: fresh, deadline: now}, timeOut, time.Time{}},
		{"left, and kept by others", facts{exists: true, deleting: true, deadline: now}, nothing, time.Time{}},
		{"seen in the future", facts{registered: true, exists: true, ready: true, lastSeen: now.Add(time.Hour)}, wait, now.Add(time.Hour + unreachable)},
	} {
		if do, at := next(c.facts, now, unreachable); do != c.do || !at.Equal(c.at) {
			t.Errorf("%s: %d at %v; want %d at %v", c.name, do, at, c.do, c.at)
		}
	}
}
