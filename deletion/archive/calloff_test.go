package archive

import (
	"fmt"
	"math/rand/v2"
	"testing"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hold deletes an object as a client does, on a server whose guard allows one object.
func (w *world) hold(o object.Object, policy metav1.DeletionPropagation) {
	w.Helper()
	k, _ := w.kinds.Snapshot().Stored(o.Kind)
	_, err := w.store.Delete(w.Context(), store.DeleteRequest{
		Key: o.Key, Options: metav1.DeleteOptions{PropagationPolicy: &policy}, Rules: k.Rules,
		Actor: "first", Guarded: true, MaxCascade: 1,
	})
	if err != nil {
		w.Fatal(err)
	}
}

// callOff restores, and reports whether that called off the deletion of owner.
func (w *world) callOff(spec v1.RestoreSpec) bool {
	w.Helper()
	status, err := w.archive.Restore(w.Context(), kindtest.Almighty(), spec)
	if err != nil && !object.Is(err, object.BadRequest) {
		w.Fatal(err)
	}
	if status.CalledOff > 0 {
		w.want(status, "ConfigMap/owner called off")
	}
	return status.CalledOff > 0
}

// TestCallOff: calling off a held deletion keeps the same object, for each way to name it;
// a deletion that the guard does not hold is left to the archive.
func TestCallOff(t *testing.T) {
	each(t, func(w *world) {
		owner := w.createWith("configmaps:n/owner", func(m *metav1.ObjectMeta) {
			m.Generation, m.Finalizers = 3, []string{"example.com/mine"}
		})
		w.create("configmaps:n/child", owner)
		byName := v1.RestoreSpec{Object: &v1.ObjectName{Kind: "cm", Namespace: "n", Name: "owner"}}
		if w.callOff(byName) {
			t.Error("called off the deletion of an ACTIVE object")
		}
		for _, spec := range []v1.RestoreSpec{byName, {UID: owner.UID}, {Cascade: string(owner.UID)}} {
			before, was := w.get("configmaps:n/owner")
			w.hold(owner, metav1.DeletePropagationForeground)
			w.Collect()
			dry := spec
			dry.DryRun = true
			if !w.callOff(dry) {
				t.Fatalf("%+v: not held", spec)
			}
			if _, m := w.get("configmaps:n/owner"); !lifecycle.GuardOf(&m).Held {
				t.Errorf("%+v: a dry run called it off", spec)
			}
			if !w.callOff(spec) || w.callOff(spec) {
				t.Errorf("%+v: not called off, or twice", spec)
			}
			after, m := w.get("configmaps:n/owner")
			if after.UID != before.UID || m.DeletionTimestamp != nil || m.DeletionGracePeriodSeconds != nil || m.Generation != was.Generation+2 ||
				len(m.Finalizers) != 1 || len(m.Annotations) != 0 {
				t.Errorf("%+v: got %+v", spec, m)
			}
			w.Collect()
			if !w.exists("configmaps:n/child") {
				t.Fatal("the dependent went")
			}
		}
		// Another client deletes next; that deletion is a new one.
		var actor []byte
		if _, err := w.db.Row(t.Context(), `SELECT deletion_actor FROM objects WHERE uid = $1`, []any{string(owner.UID)}, &actor); err != nil || actor != nil {
			t.Errorf("actor %q, %v", actor, err)
		}
	})
}

// TestCallOffRelinks: an object that lost a reference, whose owner came back while its own deletion was held, refers to the
// owner again when that deletion is called off; not while the owner is being deleted.
func TestCallOffRelinks(t *testing.T) {
	each(t, func(w *world) {
		owner, child := w.family()
		now, _ := w.get("configmaps:n/child")
		w.create("configmaps:n/below", now)
		w.hold(child, background)
		w.restore(v1.RestoreSpec{UID: owner.UID})
		w.wantOwners("configmaps:n/child")
		w.want(w.restore(v1.RestoreSpec{UID: child.UID}), "ConfigMap/child called off")
		w.wantOwners("configmaps:n/child", owner.UID)
	})
	t.Run("the owner is being deleted", func(t *testing.T) {
		each(t, func(w *world) {
			owner, _ := w.family()
			w.createWith("configmaps:n/owner", func(m *metav1.ObjectMeta) { m.UID, m.Finalizers = owner.UID, []string{"x.dev/hold"} })
			w.delete(owner, background)
			r := w.archive.begin(kindtest.Almighty(), v1.RestoreSpec{UID: owner.UID}, w.names())
			if err := r.relinkRest(w.Context(), owner.UID, &v1.RestoreResult{}); err != nil {
				w.Fatal(err)
			}
			w.wantOwners("configmaps:n/child")
		})
	})
}

// TestCallOffTooLate: the deletion was confirmed before it was called off.
func TestCallOffTooLate(t *testing.T) {
	each(t, func(w *world) {
		owner := w.createWith("configmaps:n/owner", func(m *metav1.ObjectMeta) { m.Finalizers = []string{"example.com/mine"} })
		w.create("configmaps:n/child", owner)
		w.hold(owner, metav1.DeletePropagationForeground)
		deleting, err := w.store.Reader().DeletingFor(t.Context(), owner.UID, "")
		if err != nil || len(deleting) != 1 || !deleting[0].Held() {
			t.Fatalf("got %+v, %v", deleting, err)
		}
		w.change("configmaps:n/owner", func(m *metav1.ObjectMeta) { m.Annotations[lifecycle.ConfirmCascade] = "2" })
		w.Collect()
		if w.exists("configmaps:n/child") {
			t.Fatal("the guard did not let it pass")
		}
		// The deletion was found as held, and is not held any more when the call-off runs.
		r := w.archive.begin(kindtest.Almighty(), v1.RestoreSpec{UID: owner.UID}, w.names())
		results, err := r.callBack(t.Context(), deleting)
		if err != nil || len(results) != 1 || results[0].Outcome != v1.Awaited {
			t.Errorf("got %+v, %v", results, err)
		}
	})
}

// TestCallOffIsAsBefore: whatever the kind of an object does when it is deleted, after the deletion was called off the object
// is as it was, but for its generation.
func TestCallOffIsAsBefore(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := newUndoWorlds(t, db)
		owner := w.create("namespaces:/m")
		w.create("configmaps:m/a")
		pod := w.create("pods:n/p")
		w.create("configmaps:n/child", pod)
		u := &undoWorld{world: w, namespace: "m", rand: rand.New(rand.NewPCG(1, 1))}
		u.define()
		for i := range 2 {
			u.createAs(keyOf(fmt.Sprintf("%s:n/w%d", u.definition.Name, i)), `"spec":{"color":"blue"}`, func(*metav1.ObjectMeta) {})
		}
		for _, o := range []object.Object{owner, pod, u.definition} {
			w.hold(o, background)
			if status := w.restore(v1.RestoreSpec{UID: o.UID}); status.CalledOff != 1 {
				t.Fatalf("%s: %+v", o.Key, status)
			}
			now, err := w.store.Get(t.Context(), o.Key)
			if err != nil {
				t.Fatal(err)
			}
			if diff, err := v1.Differences(o.Body, now.Body); err != nil || len(diff) > 0 {
				t.Errorf("%s: %+v, %v", o.Key, diff, err)
			}
		}
		u.undefine()
	})
}
