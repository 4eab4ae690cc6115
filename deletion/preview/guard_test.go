package preview

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// deleteGuarded deletes as a person does.
func (w *world) deleteGuarded(key object.Key, options metav1.DeleteOptions, limit int64) object.Object {
	w.t.Helper()
	result, err := w.store.Delete(w.t.Context(), store.DeleteRequest{
		Key: key, Options: options, Rules: w.rules(key.Kind), Guarded: true, MaxCascade: limit,
	})
	if err != nil {
		w.t.Fatalf("delete %s: %v", key, err)
	}
	return result.Object
}

// TestGuardForeseen: preview, warning, report and the collector agree about
// whether a deletion is held, at the limit and one below it.
func TestGuardForeseen(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		home := w.create(thing{kind: object.Namespaces, name: "n"})
		owner := w.create(thing{namespace: "n", name: "owner"})
		other := w.create(thing{namespace: "n", name: "other"})
		for i := range 5 {
			child := w.create(thing{namespace: "n", name: fmt.Sprintf("c%d", i), owners: w.ownedBy(owner)})
			w.create(thing{namespace: "n", name: fmt.Sprintf("g%d", i), owners: w.ownedBy(child)})
		}
		w.create(thing{namespace: "n", name: "kept", owners: w.ownedBy(owner, other)})
		w.create(thing{kind: object.Events, namespace: "n", name: "e"})
		for _, c := range []struct {
			of    object.Object
			going int64
		}{{owner, 11}, {home, 13}} {
			for _, limit := range []int64{c.going, c.going - 1} {
				w.service.opts.MaxCascade = limit
				holds := limit < c.going
				p, err := w.service.Preview(t.Context(), v1.DeletionPreviewSpec{Object: v1.ObjectReference{UID: c.of.UID}, CountsOnly: true})
				if want := (v1.Guard{Limit: limit, Deletes: c.going, Holds: holds}); err != nil || p.Guard == nil || *p.Guard != want {
					t.Fatalf("%s, limit %d: got %+v, %v", c.of.Key, limit, p.Guard, err)
				}
			}
			o := w.deleteGuarded(c.of.Key, metav1.DeleteOptions{}, c.going-1)
			text, err := w.service.Held(t.Context(), o, &metav1.DeleteOptions{})
			if err != nil || !strings.Contains(text, fmt.Sprintf("more than %d objects would go", c.going-1)) {
				t.Errorf("%s: got %q, %v", c.of.Key, text, err)
			}
			want := fmt.Sprintf("Guard: its deletion waits to be confirmed: %d objects would go, and %d may\n", c.going, c.going-1)
			if got := outline(w.report(c.of).Reasons, ""); got != want {
				t.Errorf("%s: got %swant %s", c.of.Key, got, want)
			}
			for range 3 {
				if _, err := w.collector.RunOne(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			stored := w.get(c.of.Key, c.of.UID)
			if !lifecycle.GuardOf(stored).Held {
				t.Fatalf("%s is not held: %+v", c.of.Key, stored)
			}
		}
	})
}

// confirm lets a number of objects go, as a person does.
func (w *world) confirm(key object.Key, n int64) {
	w.t.Helper()
	o, err := w.store.Get(w.t.Context(), key)
	if err != nil {
		w.t.Fatal(err)
	}
	m, err := object.ParseMeta(o.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	metav1.SetMetaDataAnnotation(&m, lifecycle.ConfirmCascade, fmt.Sprint(n))
	body, err := object.WithMeta(o.Body, m)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.store.Update(w.t.Context(), store.UpdateRequest{Key: key, IfRevision: o.Revision, Meta: m, Body: body}); err != nil {
		w.t.Fatalf("confirm %s: %v", key, err)
	}
}

// TestGuardCountsWhatGoes: on random graphs, what a preview counts is what the
// guard counts (one less is held, and nothing has begun; exactly as many pass),
// and what is then really gone.
func TestGuardCountsWhatGoes(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := newWorld(t, db, Options{Batch: 3, MaxCascade: 1})
		held, largest := 0, int64(0)
		for seed := uint64(1000); seed < 1000+graphs/2; seed++ {
			g := newGraph(w, seed)
			n := g.checkGuard()
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
			if n > 1 {
				held++
			}
			largest = max(largest, n)
		}
		t.Logf("%d deletions were held; the largest would take %d", held, largest)
		if held < graphs/8 || largest < 6 {
			t.Error("the graphs are too tame to prove anything")
		}
	})
}

// checkGuard returns how many objects a deletion removed; 0 if there was none, or
// if the number is not certain.
func (g *graph) checkGuard() int64 {
	root := g.random.IntN(min(3, len(g.objects)))
	deleted := g.objects[root]
	if g.chance(6) {
		deleted = g.home
	}
	if m := g.get(deleted.Key, deleted.UID); m == nil || m.DeletionTimestamp != nil {
		return 0 // the collector had it already
	}
	options := with(policies[g.random.IntN(len(policies))])
	status := g.preview(deleted, options)
	items := map[types.UID]v1.Item{}
	for _, item := range status.Items {
		if item.Uncertain {
			return 0
		}
		items[item.UID] = item
	}
	n := status.Guard.Deletes
	before, leaving := g.alive()
	if n > 1 {
		g.deleteGuarded(deleted.Key, options, n-1)
		g.collect()
		if !lifecycle.GuardOf(g.get(deleted.Key, deleted.UID)).Held {
			g.t.Errorf("%s is let pass at %d, and %d would go", deleted.Key, n-1, n)
		}
		if after, _ := g.alive(); len(after) != len(before)-1 {
			g.t.Errorf("%s is held, and yet of %d objects %d are left", deleted.Key, len(before), len(after))
		}
		g.confirm(deleted.Key, n)
	} else {
		g.deleteGuarded(deleted.Key, options, n)
	}
	g.collect()
	if m := g.get(deleted.Key, deleted.UID); m != nil && lifecycle.GuardOf(m).Held {
		g.t.Errorf("%s is held at %d", deleted.Key, n)
	}
	g.releaseAll(items)
	after, _ := g.alive()
	// What was on its way before takes others with it, which the guard of that
	// deletion counted.
	if gone := int64(len(before) - len(after)); gone < n || gone > n && leaving == 0 {
		g.t.Errorf("%s: %d were to go, and %d went", deleted.Key, n, gone)
	}
	if g.t.Failed() {
		g.dump(deleted.Key, options, items)
	}
	return n
}

// alive is what is there and not on its way, the namespace too; leaving is how
// many are on their way.
func (g *graph) alive() (alive map[types.UID]bool, leaving int) {
	alive = map[types.UID]bool{}
	for _, o := range append(slices.Clone(g.objects), g.home) {
		switch m := g.get(o.Key, o.UID); {
		case m == nil:
		case m.DeletionTimestamp != nil:
			leaving++
		default:
			alive[o.UID] = true
		}
	}
	return alive, leaving
}
