package gc

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// One test per trigger and event. Nothing runs the collector here: what is in
// the queue was put there by the database.

func TestObjectsRemovedTrack(t *testing.T) {
	each(t, func(w *world) {
		w.add("parent")
		w.add("child", owned("parent"))
		w.add("single")
		w.delete("single", background)
		w.wantQueue("")
		w.delete("child", background)
		w.wantQueue("")
		w.add("child", owned("parent"))
		w.delete("parent", background)
		w.wantQueue("parent owner_removed")
	})
}

func TestObjectsLeftNamespaceTrack(t *testing.T) {
	each(t, func(w *world) {
		w.addNamespace("n")
		w.add("a")
		w.add("b")
		w.delete("a", background)
		w.wantQueue("")
		w.delete("namespaces:/n", background)
		w.wantQueue("namespaces:/n deleting")
		w.delete("b", background)
		w.wantQueue("namespaces:/n content_removed")
		w.add("m/c")
		w.delete("m/c", background)
		w.wantQueue("namespaces:/n content_removed")
	})
}

func TestObjectsLingerInNamespaceTrack(t *testing.T) {
	each(t, func(w *world) {
		w.addNamespace("n")
		w.add("a", finalizers("example.com/x", "example.com/y"))
		w.delete("a", background)
		w.wantQueue("") // the namespace is not terminating
		w.delete("namespaces:/n", background)
		w.update("a", finalizers("example.com/y"))
		w.wantQueue("namespaces:/n content_changed")
	})
}

func TestObjectsDeletingTrack(t *testing.T) {
	each(t, func(w *world) {
		w.add("held", finalizers("example.com/x"))
		w.delete("held", background)
		w.wantQueue("") // not the collector's business
		w.add("a")
		w.delete("a", orphan)
		w.add("b", finalizers(metav1.FinalizerDeleteDependents))
		w.wantQueue("a deleting") // b has a finalizer and is ACTIVE
		w.delete("b", foreground)
		w.wantQueue("a deleting; b deleting")
		w.drain()
		w.want("held!(example.com/x)")

		w.addBody("c", `,"status":{"observedGeneration":1}`)
		w.delete("c", orphan)
		w.drain()
		w.claim()
		w.updateBody("c", func(b []byte) []byte { return b }, func(_ *world, m *metav1.ObjectMeta) { m.Labels = map[string]string{"a": "b"} })
		w.wantQueue("c deleting") // the change took the claim away
	})
}

func TestOwnersAddedTrack(t *testing.T) {
	each(t, func(w *world) {
		w.add("parent")
		w.add("child", owned("parent"))
		w.wantQueue("")
		w.add("stray", owned("missing"))
		w.wantQueue("never-missing owner_absent")
		w.drain()
		w.add("waiting", finalizers("example.com/x"))
		w.delete("waiting", foreground)
		w.drain()
		w.wantQueue("")
		w.add("late", owned("waiting"))
		w.wantQueue("") // it is released already, only someone else's finalizer is left
		w.add("blocker", owned("parent^"), finalizers("example.com/x"))
		w.delete("parent", foreground)
		w.drain()
		w.add("latecomer", owned("parent"))
		w.wantQueue("parent owner_absent")
	})
}

// TestOwnersAddedTrackUpdate is the same event from an update.
func TestOwnersAddedTrackUpdate(t *testing.T) {
	each(t, func(w *world) {
		w.add("a")
		w.update("a", owned("missing"))
		w.wantQueue("never-missing owner_absent")
	})
}

func TestOwnersForeignTrack(t *testing.T) {
	each(t, func(w *world) {
		w.add("m/owner")
		w.add("/global")
		w.add("n/a", owned("/global"))
		w.wantQueue("")
		w.add("b", owned("m/owner"))
		w.wantQueue("b owner_foreign")
		w.add("/c", owned("m/owner"))
		w.wantQueue("b owner_foreign; /c owner_foreign")
	})
}

func TestOwnersRemovedTrack(t *testing.T) {
	each(t, func(w *world) {
		w.add("owner")
		w.add("blocker", owned("owner^"), finalizers("example.com/x"))
		w.add("second", owned("owner^"), finalizers("example.com/x"))
		w.add("other", owned("owner"), finalizers("example.com/x"))
		w.delete("owner", foreground)
		w.drain()
		w.wantQueue("")
		w.update("other", finalizers())
		w.wantQueue("") // it did not block
		w.update("blocker", finalizers())
		w.wantQueue("owner dependent_removed")
		w.drain()
		w.update("second", func(_ *world, m *metav1.ObjectMeta) { m.OwnerReferences = nil })
		w.wantQueue("owner dependent_removed")
		w.drain()
		w.want("second!(example.com/x)")
	})
}

// TestObjectsDisowned: each statement that removes an object also removes its
// references, and enqueues the owner that waited for it.
func TestObjectsDisowned(t *testing.T) {
	each(t, func(w *world) {
		w.add("parent")
		w.add("child", owned("parent^"))
		w.delete("parent", foreground)
		w.exec(`DELETE FROM gc_object_reviews`)
		w.exec(`DELETE FROM objects WHERE name = 'child'`)
		w.wantQueue("parent dependent_removed")
		left := int64(0)
		if _, err := w.db.Row(t.Context(), `SELECT count(*) FROM owners`, nil, &left); err != nil || left != 0 {
			w.Errorf("%d references are left, %v", left, err)
		}
	})
}
