package preview

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/deletion/deletiontest"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store/storetest"
)

// guarded counts a held deletion as a report does.
func (w *world) guarded(o object.Object) Cascade {
	w.T.Helper()
	snapshot, err := w.Store.Snapshot(w.T.Context())
	if err != nil {
		w.T.Fatal(err)
	}
	defer snapshot.Close()
	h, err := snapshot.GetByUID(w.T.Context(), o.UID)
	if err != nil || h == nil {
		w.T.Fatalf("read %s: %v, %v", o.Key, h, err)
	}
	c, err := w.service.Guarded(w.T.Context(), snapshot, h, 1000)
	if err != nil {
		w.T.Fatal(err)
	}
	return c
}

// TestGuardForeseen: preview, warning and the collector agree about whether a
// deletion is held, at the limit and one below it. report.TestGuard has the report.
func TestGuardForeseen(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		for _, c := range w.Family() {
			for _, limit := range []int64{c.Count, c.Count - 1} {
				w.service.SetMaxCascade(limit)
				holds := limit < c.Count
				p, err := w.service.Preview(t.Context(), kindtest.Almighty(), v1.DeletionPreviewSpec{Object: v1.ObjectReference{UID: c.Of.UID}, CountsOnly: true})
				if want := (v1.Guard{Limit: limit, Deletes: c.Count, Holds: holds}); err != nil || p.Guard == nil || *p.Guard != want {
					t.Fatalf("%s, limit %d: got %+v, %v", c.Of.Key, limit, p.Guard, err)
				}
			}
			o := w.DeleteGuarded(c.Of.Key, metav1.DeleteOptions{}, c.Count-1)
			text, err := w.service.Held(t.Context(), o, &metav1.DeleteOptions{})
			if err != nil || !strings.Contains(text, fmt.Sprintf("more than %d objects would go", c.Count-1)) {
				t.Errorf("%s: got %q, %v", c.Of.Key, text, err)
			}
			if held := w.guarded(c.Of); held.Going != c.Count || held.AtLeast || held.Allowed() != c.Count-1 {
				t.Errorf("%s: got %+v", c.Of.Key, held)
			}
			for range 3 {
				if _, err := w.Collector.RunOne(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			stored := w.Get(c.Of.Key, c.Of.UID)
			if !lifecycle.GuardOf(stored).Held {
				t.Fatalf("%s is not held: %+v", c.Of.Key, stored)
			}
		}
	})
}

// TestGuardOfWhatLeavesAlready: a guard does not count what leaves because an owner of it was deleted before, also while
// the collector has not looked at it yet.
func TestGuardOfWhatLeavesAlready(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.Create(thing{Kind: object.Namespaces, Name: "n"})
		root := w.Create(thing{Namespace: "n", Name: "root"})
		w.Create(thing{Namespace: "n", Name: "other", Owners: w.OwnedBy(root)})
		before := w.Create(thing{Namespace: "n", Name: "before", Owners: w.OwnedBy(root), Finalizers: []string{"example.com/hold"}})
		child := w.Create(thing{Namespace: "n", Name: "child", Owners: w.OwnedBy(before)})
		w.Create(thing{Namespace: "n", Name: "grandchild", Owners: w.OwnedBy(child)})
		w.service.SetMaxCascade(100)
		deletes := func() int64 {
			p, err := w.service.Preview(t.Context(), kindtest.Almighty(), v1.DeletionPreviewSpec{Object: v1.ObjectReference{UID: root.UID}})
			if err != nil || p.Guard == nil {
				t.Fatalf("%+v, %v", p, err)
			}
			return p.Guard.Deletes
		}
		if n := deletes(); n != 5 {
			t.Errorf("%d objects would go, want all five", n)
		}
		w.Delete(before.Key, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)})
		if n := deletes(); n != 2 {
			t.Errorf("%d objects would go because of the root, want it and one more", n)
		}
		held := w.Create(thing{Namespace: "n", Name: "held", Owners: w.OwnedBy(root), Finalizers: []string{"example.com/hold"}})
		w.Create(thing{Namespace: "n", Name: "of-both", Owners: w.OwnedBy(root, held)})
		w.Delete(held.Key, metav1.DeleteOptions{})
		if n := deletes(); n != 2 {
			t.Errorf("%d objects would go because of the root: what stays until another deletion ends goes by that", n)
		}
	})
}

// TestGuardOfNamespace: the limit that a namespace sets holds for its objects, and not one that an object of it carries. What is
// within it gets no warning.
func TestGuardOfNamespace(t *testing.T) {
	w := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite), Options{MaxCascade: 100})
	home := w.Create(thing{Kind: object.Namespaces, Name: "n"})
	root := w.Create(thing{Namespace: "n", Name: "root"})
	w.Create(thing{Namespace: "n", Name: "child", Owners: w.OwnedBy(root)})
	for key, limit := range map[object.Key]string{home.Key: "2", root.Key: "1"} {
		storetest.Update(t, w.Store, key, w.Rules(key.Kind), func(m *metav1.ObjectMeta) {
			metav1.SetMetaDataAnnotation(m, lifecycle.MaxCascade, limit)
		})
	}
	p := w.preview(root, metav1.DeleteOptions{})
	if want := (v1.Guard{Limit: 2, Deletes: 2}); p.Guard == nil || *p.Guard != want {
		t.Errorf("got %+v, want %+v", p.Guard, want)
	}
	o := w.DeleteGuarded(root.Key, metav1.DeleteOptions{}, 2)
	if text, err := w.service.Held(t.Context(), o, &metav1.DeleteOptions{}); text != "" || err != nil {
		t.Errorf("got %q, %v", text, err)
	}
}

// TestUnreadable: while a part of the database cannot be read, a preview is refused or right.
func TestUnreadable(t *testing.T) {
	db := dbtest.OpenDB(t, sqldb.SQLite)
	w := newWorld(t, db, Options{MaxCascade: 1})
	c := w.Family()[0]
	dbtest.Unreadable(t, db, "archive changes gc_object_reviews objects owners revision", func() (any, error) {
		p, err := w.service.Preview(t.Context(), kindtest.Almighty(), v1.DeletionPreviewSpec{Object: v1.ObjectReference{UID: c.Of.UID}})
		text, encode := json.Marshal(p)
		return string(text), errors.Join(err, encode)
	})
}

// TestJudges: a preview names what may judge the objects that leave, and nothing that judges those that stay.
func TestJudges(t *testing.T) {
	w := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite), Options{})
	w.Create(thing{Kind: object.Namespaces, Name: "n"})
	a := w.Create(thing{Namespace: "n", Name: "a"})
	w.Create(thing{Kind: "secrets", Namespace: "n", Name: "s", Owners: w.OwnedBy(a)})
	w.Create(thing{Kind: "pods", Namespace: "n", Name: "p", Owners: w.OwnedBy(a, w.Create(thing{Namespace: "n", Name: "b"}))})
	client := kindtest.Almighty()
	client.Judges = func(kind string) []string { return []string{"webhook " + kind} }
	p, err := w.service.Preview(t.Context(), client, v1.DeletionPreviewSpec{Object: v1.ObjectReference{UID: a.UID}})
	if want := []string{"webhook configmaps", "webhook secrets"}; err != nil || !slices.Equal(p.Judges, want) {
		t.Errorf("got %q, %v, want %q", p.Judges, err, want)
	}
}

// confirm confirms a number of objects, as a client does.
func (w *world) confirm(key object.Key, n int64) {
	w.T.Helper()
	storetest.Update(w.T, w.Store, key, w.Rules(key.Kind), func(m *metav1.ObjectMeta) {
		metav1.SetMetaDataAnnotation(m, lifecycle.ConfirmCascade, fmt.Sprint(n))
	})
}

// TestGuardCountsWhatGoes: on random graphs the preview and the guard count the same
// number (one less is held and removes nothing, exactly that many passes), and that number
// of objects is removed.
func TestGuardCountsWhatGoes(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := newWorld(t, db, Options{Batch: 3, MaxCascade: 1})
		held, largest := 0, int64(0)
		for seed := uint64(1000); seed < 1000+uint64(*graphs)/2; seed++ {
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
		if held < *graphs/8 || largest < 6 {
			t.Error("the random graphs hold too few deletions")
		}
	})
}

// checkGuard returns how many objects a deletion removed; 0 if there was none, or if the
// number is uncertain.
func (g *graph) checkGuard() int64 {
	root := g.random.IntN(min(3, len(g.objects)))
	deleted := g.objects[root]
	if g.chance(6) {
		deleted = g.home
	}
	if m := g.Get(deleted.Key, deleted.UID); m == nil || m.DeletionTimestamp != nil {
		return 0 // the collector has removed it already
	}
	options := deletiontest.With(policies[g.random.IntN(len(policies))])
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
		g.DeleteGuarded(deleted.Key, options, n-1)
		g.Collect()
		if !lifecycle.GuardOf(g.Get(deleted.Key, deleted.UID)).Held {
			g.T.Errorf("the guard lets %s pass with limit %d, although %d objects would go", deleted.Key, n-1, n)
		}
		if after, _ := g.alive(); len(after) != len(before)-1 {
			g.T.Errorf("%s is held, but of %d objects %d are left", deleted.Key, len(before), len(after))
		}
		g.confirm(deleted.Key, n)
	} else {
		g.DeleteGuarded(deleted.Key, options, n)
	}
	g.Collect()
	if m := g.Get(deleted.Key, deleted.UID); m != nil && lifecycle.GuardOf(m).Held {
		g.T.Errorf("%s is held with limit %d", deleted.Key, n)
	}
	g.releaseAll(items)
	after, _ := g.alive()
	// A deletion that was under way before removes further objects, which its own guard
	// counted.
	if gone := int64(len(before) - len(after)); gone < n || gone > n && leaving == 0 {
		g.T.Errorf("%s: %d objects were counted, and %d were removed", deleted.Key, n, gone)
	}
	if g.T.Failed() {
		g.dump(deleted.Key, options, items)
	}
	return n
}

// alive returns the objects that are not being deleted, with the namespace; leaving is the
// number of objects that are.
func (g *graph) alive() (alive map[types.UID]bool, leaving int) {
	alive = map[types.UID]bool{}
	for _, o := range append(slices.Clone(g.objects), g.home) {
		switch m := g.Get(o.Key, o.UID); {
		case m == nil:
		case m.DeletionTimestamp != nil:
			leaving++
		default:
			alive[o.UID] = true
		}
	}
	return alive, leaving
}

// TestHeldInNamespace: an object whose deletion is held is in a namespace that is deleted. Its dependents
// go as content of the namespace; it follows when no more than its limit would go. An object that
// carries the guard's finalizer itself stays until its deletion is confirmed, and the namespace waits.
func TestHeldInNamespace(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		home := w.Create(thing{Kind: object.Namespaces, Name: "n"})
		owner := w.Create(thing{Namespace: "n", Name: "owner"})
		for i := range 3 {
			w.Create(thing{Namespace: "n", Name: fmt.Sprint("child-", i), Owners: w.OwnedBy(owner)})
		}
		kept := w.Create(thing{Namespace: "n", Name: "kept", Finalizers: []string{lifecycle.ConfirmCascade}})
		w.DeleteGuarded(owner.Key, deletiontest.With(metav1.DeletePropagationBackground), 1)
		w.Collect()
		if m := w.Get(owner.Key, owner.UID); m == nil || !lifecycle.GuardOf(m).Held {
			t.Fatalf("not held: %+v", m)
		}
		w.Delete(home.Key, metav1.DeleteOptions{})
		for range 3 {
			w.Later(time.Minute)
			w.Collect()
		}
		if m := w.Get(owner.Key, owner.UID); m != nil {
			t.Errorf("held by its guard, with nothing left to go: %+v", m)
		}
		if w.Get(kept.Key, kept.UID) == nil || w.Get(home.Key, home.UID) == nil {
			t.Error("what carries the guard's finalizer went without its confirmation")
		}
		storetest.Update(t, w.Store, kept.Key, w.Rules(kept.Kind), func(m *metav1.ObjectMeta) {
			m.Annotations = map[string]string{lifecycle.ConfirmCascade: "1"}
		})
		w.Later(time.Minute)
		w.Collect()
		if w.Get(home.Key, home.UID) != nil {
			t.Error("the namespace is still there")
		}
	})
}
