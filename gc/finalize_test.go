package gc

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
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

// TestOrphanWaitsForTheFirstReport: where the schema has observedGeneration, a
// controller that has not reported yet has seen nothing. A kind without the field
// orphans at once.
func TestOrphanWaitsForTheFirstReport(t *testing.T) {
	each(t, func(w *world) {
		w.addBody("deployments.apps:a", `,"spec":{}`)
		w.addBody("configmaps:b", `,"data":{}`)
		w.add("c", owned("deployments.apps:a"))
		w.add("d", owned("configmaps:b"))
		w.delete("deployments.apps:a", orphan)
		w.delete("configmaps:b", orphan)
		w.drain()
		w.want("c<deployments.apps:a d deployments.apps:a!(orphan)")
		w.updateBody("deployments.apps:a", func(body []byte) []byte {
			return append(body[:len(body)-1], `,"status":{"observedGeneration":2}}`...)
		})
		w.drain()
		w.want("c d")
	})
}

// TestOrphanWaitIsSet by an option: longer, or not at all.
func TestOrphanWaitIsSet(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := newWorld(t, db, Options{OrphanWait: time.Minute})
		w.addBody("deployments.apps:a", `,"spec":{}`)
		w.add("c", owned("deployments.apps:a"))
		w.delete("deployments.apps:a", orphan)
		w.drain()
		w.clock.Advance(59 * time.Second)
		w.drain()
		w.want("c<deployments.apps:a deployments.apps:a!(orphan)")
		w.clock.Advance(time.Second)
		w.drain()
		w.want("c")

		w.opts.OrphanWait = -1
		w.restart()
		w.addBody("deployments.apps:b", `,"spec":{}`)
		w.add("d", owned("deployments.apps:b"))
		w.delete("deployments.apps:b", orphan)
		w.drain()
		w.want("c d")
	})
}

func TestOrphanWaitIsBounded(t *testing.T) {
	each(t, func(w *world) {
		w.addBody("a", `,"status":{"observedGeneration":1}`)
		w.add("b", owned("a"))
		w.delete("a", orphan)
		w.drain()
		w.clock.Advance(DefaultOrphanWait - time.Second)
		w.drain()
		w.want("a!(orphan) b<a")
		w.clock.Advance(time.Second)
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

// TestForegroundIsExact: an owner in foreground deletion waits for the dependents that
// block it, and for no others.
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

// TestForegroundSolidOwner: a dependent with another owner loses the reference, stays,
// and does not block.
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

// TestForegroundNoCycle: the owner waits for a dependent that waits for a third object
// and not for the owner, although the references form a circle.
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

// TestForegroundIsNotAll: a cascade that follows an owner in the same transaction
// does only what waits for its dependents. A Namespace among them waits for its
// content too, and is emptied although a dependent still blocks it.
func TestForegroundIsNotAll(t *testing.T) {
	each(t, func(w *world) {
		w.add("/root")
		w.addBody("namespaces:/m", `,"spec":{"finalizers":["kubernetes"]},"status":{"phase":"Active"}`, owned("/root^"))
		w.add("m/content")
		w.add("/dependent", owned("namespaces:/m^"), finalizers(held))
		w.delete("/root", foreground)
		w.drain()
		w.want("/dependent!(" + held + ")<namespaces:/m /root!(foregroundDeletion) namespaces:/m!(foregroundDeletion)</root")
	})
}
