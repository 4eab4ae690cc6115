package gc

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestOrphan(t *testing.T) {
	each(t, func(w *world) {
		w.add("a")
		w.add("keeper")
		w.add("b", owned("a"))
		w.add("c", owned("a^", "keeper", "gone"))
		w.add("d", owned("a"), finalizers(held))
		w.delete("d", background)
		w.delete("a", orphan)
		w.want("a!(orphan) b<a c<a,keeper,never-gone d!(" + held + ")<a keeper")
		w.drain()
		// What dangles is dropped with it.
		w.want("b c<keeper d!(" + held + ") keeper")
		w.wantQueue("")
	})
}

// TestOrphanWaits for the controller to see the deletion.
func TestOrphanWaits(t *testing.T) {
	each(t, func(w *world) {
		w.addBody("a", `,"status":{"observedGeneration":1}`)
		w.add("b", owned("a"))
		w.delete("a", orphan) // generation 2
		w.drain()
		w.want("a!(orphan) b<a")
		w.observe("a", 2)
		w.drain()
		w.want("b")
	})
}

// TestOrphanDoesNotWait for a controller that has seen it, or reports nothing.
func TestOrphanDoesNotWait(t *testing.T) {
	each(t, func(w *world) {
		w.addBody("a", `,"status":{"observedGeneration":2}`)
		w.addBody("b", `,"status":{}`)
		w.add("c", owned("a", "b"))
		w.delete("a", orphan)
		w.delete("b", orphan)
		w.drain()
		w.want("c")
	})
}

func TestOrphanWaitIsBounded(t *testing.T) {
	each(t, func(w *world) {
		w.addBody("a", `,"status":{"observedGeneration":1}`)
		w.add("b", owned("a"))
		w.delete("a", orphan)
		w.drain()
		w.clock.advance(29 * time.Second)
		w.drain()
		w.want("a!(orphan) b<a")
		w.clock.advance(time.Second)
		w.drain()
		w.want("b")
	})
}

// TestOrphanItself: an object that owns itself.
func TestOrphanItself(t *testing.T) {
	each(t, func(w *world) {
		w.add("a", finalizers(held))
		w.update("a", owned("a"))
		w.delete("a", orphan)
		w.drain()
		w.want("a!(" + held + ")")
		w.update("a", finalizers())
		w.want("")
	})
}

// TestForegroundIsExact: it waits for those that block it, and for no others.
func TestForegroundIsExact(t *testing.T) {
	each(t, func(w *world) {
		w.add("a")
		w.add("blocks", owned("a^"), finalizers(held))
		w.add("does-not", owned("a"), finalizers(held))
		w.delete("a", foreground)
		w.drain()
		w.want("a!(foregroundDeletion) blocks!(" + held + ")<a does-not!(" + held + ")<a")
		w.update("blocks", finalizers())
		w.drain()
		w.want("does-not!(" + held + ")<a")
	})
}

func TestForegroundGoesDown(t *testing.T) {
	each(t, func(w *world) {
		w.add("a")
		w.add("b", owned("a^"))
		w.add("c", owned("b^"), finalizers(held))
		w.add("d", owned("b")) // does not block
		w.delete("a", foreground)
		w.drain()
		w.want("a!(foregroundDeletion) b!(foregroundDeletion)<a c!(" + held + ")<b")
		w.update("c", finalizers())
		w.drain()
		w.want("")
	})
}

// TestForegroundSolidOwner: a dependent with another owner is let go, and does
// not block.
func TestForegroundSolidOwner(t *testing.T) {
	each(t, func(w *world) {
		w.add("a")
		w.add("b")
		w.add("c", owned("a^", "b^"))
		w.delete("a", foreground)
		w.drain()
		w.want("b c<b")
	})
}

// TestForegroundLateBlocker: a blocking dependent that is added while its owner
// waits is waited for too.
func TestForegroundLateBlocker(t *testing.T) {
	each(t, func(w *world) {
		w.add("a")
		w.add("b", owned("a^"), finalizers(held))
		w.delete("a", foreground)
		w.drain()
		w.add("late", owned("a^"), finalizers(held))
		w.update("b", finalizers())
		w.drain()
		w.want("a!(foregroundDeletion) late!(" + held + ")<a")
		w.update("late", finalizers())
		w.drain()
		w.want("")
	})
}

// TestForegroundUnblocked: a dependent that no longer blocks releases the owner.
func TestForegroundUnblocked(t *testing.T) {
	each(t, func(w *world) {
		w.add("a")
		w.add("b", owned("a^"), finalizers(held))
		w.delete("a", foreground)
		w.drain()
		w.update("b", func(_ *world, m *metav1.ObjectMeta) { m.OwnerReferences[0].BlockOwnerDeletion = nil })
		w.drain()
		w.want("b!(" + held + ")<a")
	})
}

// TestSecondDelete with Background releases an owner that waits.
func TestSecondDelete(t *testing.T) {
	each(t, func(w *world) {
		w.add("a")
		w.add("b", owned("a^"), finalizers(held))
		w.add("c", owned("a^"))
		w.delete("a", foreground)
		w.delete("a", background)
		w.want("b(" + held + ")<a c<a")
		w.drain()
		w.want("b!(" + held + ")<a")

		w.add("d")
		w.add("e", owned("d^"), finalizers(held))
		w.delete("d", foreground)
		w.drain()
		w.delete("d", orphan)
		w.drain()
		w.want("b!(" + held + ")<a e!(" + held + ")") // it was on its way already
	})
}

// TestForegroundCycles end.
func TestForegroundCycles(t *testing.T) {
	each(t, func(w *world) {
		w.add("a")
		w.add("b", owned("a^"))
		w.add("c", owned("b^"))
		w.update("a", owned("c^"))
		w.delete("a", foreground)
		w.drain()
		w.want("")

		w.add("self")
		w.update("self", owned("self^"))
		w.delete("self", foreground)
		w.drain()
		w.want("")
	})
}

// TestForegroundNoCycle: a dependent that waits for someone else, and not for
// its owner, is waited for although the references form a circle.
func TestForegroundNoCycle(t *testing.T) {
	each(t, func(w *world) {
		w.add("a")
		w.add("b", owned("a^"), finalizers(held))
		w.update("a", owned("b^"))
		w.delete("b", background) // waits for the third party only
		w.delete("a", foreground)
		w.drain()
		w.want("a!(foregroundDeletion)<b b!(" + held + ")<a")
		w.update("b", finalizers())
		w.drain()
		w.want("")
	})
}
