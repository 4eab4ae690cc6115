package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestInterruptedRestore stops a restore between two objects, as a crash does, and repeats
// it.
func TestInterruptedRestore(t *testing.T) {
	each(t, func(w *world) {
		owner := w.create("configmaps:n/owner")
		w.create("configmaps:n/grandchild", w.create("configmaps:n/child", owner))
		w.delete(owner, background)
		spec := v1.RestoreSpec{Cascade: string(owner.UID)}
		r := w.archive.begin(kindtest.Almighty(), spec, w.names())
		if _, err := r.level(w.Context(), plan(w.removed(target{Cascade: spec.Cascade}))[0], func() bool { return false }); err != nil {
			w.Fatal(err)
		}
		if !w.exists("configmaps:n/owner") || w.exists("configmaps:n/child") {
			w.Fatal("the restore did not stop in the middle")
		}
		w.want(w.restore(spec), "ConfigMap/owner skipped", "ConfigMap/child created", "ConfigMap/grandchild created")
		now, _ := w.get("configmaps:n/owner")
		if _, m := w.get("configmaps:n/child"); m.OwnerReferences[0].UID != now.UID {
			w.Errorf("the child refers to %s, the owner is %s", m.OwnerReferences[0].UID, now.UID)
		}

		// A restore at its deadline reports what it did; a second one does the rest.
		ctx, cancel := context.WithDeadline(w.Context(), time.Now().Add(w.archive.opts.Spare/2))
		defer cancel()
		status, err := w.archive.Restore(ctx, kindtest.Almighty(), spec)
		if err != nil || status.Complete || len(status.Results) != 0 {
			w.Errorf("late: %+v, %v", status, err)
		}
		ctx, cancel = context.WithCancel(w.Context())
		cancel()
		if _, err := w.archive.Restore(ctx, kindtest.Almighty(), spec); !errors.Is(err, context.Canceled) {
			w.Errorf("canceled: %v", err)
		}
	})
}

// TestInterruptedGroups: a restore ends in the middle of a level of several groups, as in a
// crash; another one restores the rest, each object once.
func TestInterruptedGroups(t *testing.T) {
	each(t, func(w *world) {
		const n = 2*groupSize + 50
		owner := w.create("configmaps:n/owner")
		for i := range n {
			w.create(fmt.Sprintf("configmaps:n/child-%d", i), owner)
		}
		w.delete(owner, background)
		spec := v1.RestoreSpec{Cascade: string(owner.UID)}
		ctx, cancel := context.WithCancel(w.Context())
		first, err := New(w.db, w.store, w.kinds, w.archive.opts)
		if err != nil {
			t.Fatal(err)
		}
		var begun atomic.Int64
		first.opts.Now = func() time.Time { // it is read for each object, so here the third group has begun
			if begun.Add(1) > 2*groupSize+1 {
				cancel()
			}
			return time.Now()
		}
		if _, err := first.Restore(ctx, kindtest.Almighty(), spec); !errors.Is(err, context.Canceled) {
			w.Fatalf("the restore was not interrupted: %v", err)
		}
		before := w.Count(`SELECT count(*) FROM objects WHERE name LIKE 'child-%'`)
		if before == 0 || before == n {
			w.Fatalf("%d of %d children after the interrupted restore", before, n)
		}
		status := w.restore(spec)
		// A batch that had begun may have been written after the count.
		if status.Failed != 0 || status.Created == 0 || status.Skipped <= before || status.Created+status.Skipped != n+1 {
			w.Errorf("%d created, %d skipped, %d failed, %d before", status.Created, status.Skipped, status.Failed, before)
		}
		now, _ := w.get("configmaps:n/owner")
		if got := w.Count(`SELECT count(*) FROM objects o JOIN owners w ON w.dependent = o.id WHERE w.owner_uid = $1`, string(now.UID)); got != n {
			w.Errorf("%d of %d children refer to the owner", got, n)
		}
	})
}

// TestRestoreTwiceAtOnce: the first of concurrent restores creates each object, and all references name it.
func TestRestoreTwiceAtOnce(t *testing.T) {
	each(t, func(w *world) {
		owner := w.create("configmaps:n/owner")
		for i := range 20 {
			w.create(fmt.Sprintf("configmaps:n/child-%d", i), owner)
		}
		w.delete(owner, background)
		var group sync.WaitGroup
		var created atomic.Int64
		for range 3 {
			group.Go(func() {
				status, err := w.archive.Restore(w.Context(), kindtest.Almighty(), v1.RestoreSpec{Cascade: string(owner.UID)})
				if err != nil || status.Created+status.Skipped != 21 {
					w.Errorf("%+v, %v", status, err)
				}
				created.Add(int64(status.Created))
			})
		}
		group.Wait()
		w.Collect()
		if created.Load() != 21 {
			w.Errorf("%d objects were created, want 21", created.Load())
		}
		now, _ := w.get("configmaps:n/owner")
		for i := range 20 {
			if _, m := w.get(fmt.Sprintf("configmaps:n/child-%d", i)); len(m.OwnerReferences) != 1 || m.OwnerReferences[0].UID != now.UID {
				w.Errorf("child %d refers to %v, the owner is %s", i, m.OwnerReferences, now.UID)
			}
		}
	})
}

// TestRestoredAndGoing: an object that was restored and is being deleted again is a conflict, and nothing that the restore waits
// for: its new deletion is another cascade.
func TestRestoredAndGoing(t *testing.T) {
	each(t, func(w *world) {
		ns := w.create("namespaces:/m")
		w.create("configmaps:m/a")
		w.delete(ns, background)
		spec := v1.RestoreSpec{Cascade: string(ns.UID)}
		w.restore(spec)
		w.change("configmaps:m/a", func(m *metav1.ObjectMeta) { m.Finalizers = []string{"x.dev/hold"} })
		now, _ := w.get("configmaps:m/a")
		w.delete(now, background)
		status := w.restore(spec)
		w.want(status, "Namespace/m skipped", "ConfigMap/a skipped")
		if r := status.Results[1]; r.ConflictsWith != now.UID || !strings.Contains(r.Reason, "is being deleted again") || status.Complete {
			w.Errorf("got %+v", status)
		}
		if r := status.Results[0]; r.Reason != "it was restored before" || r.NewUID != ns.UID {
			w.Errorf("got %+v", r)
		}
	})
}

// TestUnreadable: while a part of the database cannot be read, the archive answers with an error or rightly: it never leaves out
// what it could not read.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite))
	owner, child := w.family()
	w.delete(child, background)
	lingers := w.createWith("configmaps:n/lingers", func(m *metav1.ObjectMeta) { m.Finalizers = []string{"x.dev/hold"} })
	w.delete(lingers, background)
	ctx, client := t.Context(), kindtest.Almighty()
	for _, ask := range []func() (any, error){
		func() (any, error) { return source{w.archive}.Get(ctx, client, "n", string(owner.UID)) },
		func() (any, error) { return source{w.archive}.List(ctx, client, kind.SourceQuery{Limit: 1}) },
		func() (any, error) { return cascades{w.archive}.Get(ctx, client, "n", string(lingers.UID)) },
		func() (any, error) { return cascades{w.archive}.List(ctx, client, kind.SourceQuery{Limit: 2}) },
		func() (any, error) {
			return w.archive.Restore(ctx, client, v1.RestoreSpec{Cascade: string(owner.UID), DryRun: true})
		},
		func() (any, error) {
			return w.archive.Restore(ctx, client, v1.RestoreSpec{Object: &v1.ObjectName{Kind: "cm", Namespace: "n", Name: "owner"}, DryRun: true})
		},
	} {
		dbtest.Unreadable(t, w.db, "archive archive_cascades archive_counted archive_kinds archive_spans objects owners changes dropped_references gc_object_reviews", func() (any, error) {
			answer, err := ask()
			text, encode := json.Marshal(answer)
			return string(text), errors.Join(err, encode)
		})
	}
}
