package gc

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// ownedAs adds a reference to the uid of an object, or to a uid that never existed,
// with another kind and name: "example.org/v1 Gadget g".
func ownedAs(owner, named string) option {
	return func(w *world, m *metav1.ObjectMeta) {
		r := w.reference(owner, true)
		if _, err := fmt.Sscan(named, &r.APIVersion, &r.Kind, &r.Name); err != nil {
			w.Fatal(err)
		}
		m.OwnerReferences = append(m.OwnerReferences, r)
	}
}

// gadgets is a kind whose definition comes later.
func gadgets() *kind.Kind {
	k := &kind.Kind{Group: "example.org", Name: "Gadget", Plural: "gadgets", Storage: "gadgets.example.org", Namespaced: true}
	k.Versions = []*kind.Version{{Kind: k, GVK: schema.GroupVersionKind{Group: k.Group, Version: "v1", Kind: k.Name}}}
	return k
}

// warnings are the Events: "OwnerRefUnknownKind b".
func (w *world) warnings() string {
	w.Helper()
	var out []string
	for _, r := range w.rows() {
		if r.key.Kind != "events" {
			continue
		}
		var e corev1.Event
		if err := object.DecodeInto(r.body, "", schema.GroupVersionKind{Version: "v1", Kind: "Event"}, &e); err != nil {
			w.Fatal(err)
		}
		out = append(out, e.Reason+" "+e.InvolvedObject.Name)
	}
	return strings.Join(out, ", ")
}

func (w *world) wantWarnings(want string) {
	w.Helper()
	if got := w.warnings(); got != want {
		w.Errorf("events: got %q, want %q", got, want)
	}
}

// TestOwnerOfUnknownKind: an owner of a kind that is not served keeps its dependents.
// When the kind is served, they are reviewed.
func TestOwnerOfUnknownKind(t *testing.T) {
	each(t, func(w *world) {
		w.addNamespace("n")
		w.add("a", ownedAs("nothing", "example.org/v1 Gadget g"))
		w.drain()
		w.wantWarnings("OwnerRefUnknownKind a")
		w.exec(`DELETE FROM objects WHERE kind = 'events'`)
		for range 2 { // a scan changes nothing, however often
			w.scanned()
		}
		w.want("a<never-nothing namespaces:/n")
		w.wantQueue("")
		w.kinds.Put(gadgets())
		w.scanned()
		w.want("namespaces:/n")
	})
}

func (w *world) scanned() {
	w.Helper()
	if _, err := w.gc.Scan(context.Background()); err != nil {
		w.Fatal(err)
	}
	w.drain()
}

// TestKindComes: a collector that runs notices by itself that a kind is served.
func TestKindComes(t *testing.T) {
	each(t, func(w *world) {
		w.add("a", ownedAs("nothing", "example.org/v1 Gadget g"))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.gc.Run(ctx) }()
		w.await("the first review", func() bool { return w.queue() == "" })
		w.want("a<never-nothing")
		w.kinds.Put(gadgets())
		w.await("the dependent to go", func() bool { return w.state() == "" })
		cancel()
		if err := w.ended(ended); err != nil {
			t.Error(err)
		}
	})
}

// await waits for a condition.
func (w *world) await(what string, done func() bool) {
	w.Helper()
	dbtest.Until(w, what, func() error {
		if done() {
			return nil
		}
		return fmt.Errorf("%s\nqueue: %s", w.state(), w.queue())
	})
}

// ended waits for the end of a Run, and returns its error.
func (w *world) ended(result <-chan error) error {
	w.Helper()
	select {
	case err := <-result:
		return err
	case <-time.After(time.Minute):
		w.Fatal("Run has not ended a minute after its context")
		return nil
	}
}

// TestKindGoesWithItsObjects: a definition is deleted, its objects go, and their
// dependents are reviewed when the kind is not served any more. This server saw
// the owners go, so the dependents go too: by the review that the removal put
// into the queue, over a restart and over budgets, with nothing archived.
func TestKindGoesWithItsObjects(t *testing.T) {
	t.Parallel()
	for _, budget := range []int{1, 100} {
		dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
			w := newWorld(t, db, Options{Budget: budget})
			w.add("a")
			w.add("/a")
			for i := range 3 {
				w.add(fmt.Sprintf("configmaps:a%d", i), owned("a"))
				w.add(fmt.Sprintf("namespaces:/a%d", i), owned("/a"))
			}
			w.add("configmaps:both", owned("a", "/a"))
			w.add("namespaces:/kept", owned("a")) // cluster-scoped: not resolved
			w.delete("a", background)
			w.delete("/a", background)
			w.unserved(things, clusterThings)
			w.add("configmaps:late", owned("a")) // its trigger leaves the proof
			w.restart()
			w.drain()
			w.want("namespaces:/kept<a")
			w.wantQueue("")
		})
	}
}

// TestKindGoneReviewLost: the archive proves the removal as well. Without proof
// the dependent waits for the kind.
func TestKindGoneReviewLost(t *testing.T) {
	t.Parallel()
	for _, archived := range []bool{true, false} {
		dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
			w, want := newWorld(t, db, Options{}), "b<a"
			if archived {
				w, want = newArchivingWorld(t, db, Options{}), ""
			}
			w.add("a")
			w.add("b", owned("a"))
			w.delete("a", background)
			w.unserved(things, clusterThings)
			w.exec(`DELETE FROM gc_object_reviews`)
			w.scanned()
			w.want(want)
		})
	}
}

// TestOwnerIsKindNameAndUID: a reference to the uid of an object with another
// kind or name leads nowhere. The version does not matter.
func TestOwnerIsKindNameAndUID(t *testing.T) {
	each(t, func(w *world) {
		w.addNamespace("n")
		w.add("deployments.apps:a")
		w.add("b", ownedAs("deployments.apps:a", "apps/v1 Deployment a"))
		w.add("c", ownedAs("deployments.apps:a", "apps/v1beta1 Deployment a"))
		w.wantQueue("")
		w.add("d", ownedAs("deployments.apps:a", "apps/v1 StatefulSet a"))
		w.add("e", ownedAs("deployments.apps:a", "apps/v1 Deployment other"))
		w.add("f", ownedAs("deployments.apps:a", "v1 Deployment a"))
		w.add("g", ownedAs("deployments.apps:a", "apps/v1 StatefulSet a"), owned("b"))
		w.wantQueue("d owner_foreign; e owner_foreign; f owner_foreign; g owner_foreign")
		w.drain()
		w.want("b<deployments.apps:a c<deployments.apps:a deployments.apps:a f<deployments.apps:a g<b namespaces:/n")
		w.wantWarnings("OwnerRefMismatch d, OwnerRefMismatch e, OwnerRefUnknownKind f, OwnerRefMismatch g")
	})
}

// TestMisnamedDoesNotBlock: only a dependent of the owner itself blocks its
// deletion in the foreground.
func TestMisnamedDoesNotBlock(t *testing.T) {
	each(t, func(w *world) {
		w.add("a")
		w.add("b", ownedAs("a", "example.org/v1 Gadget a"))
		w.add("c", ownedAs("a", "example.com/v1 Thing other"), finalizers(held))
		w.drain()
		w.want("a b<a c!(" + held + ")<a")
		w.delete("a", foreground)
		w.drain()
		// b followed, when it was certain that no object has the uid any more.
		w.want("c!(" + held + ")<a")
	})
}

// TestMisnamedCircle: only references with the right kind and name make owners wait
// for each other.
func TestMisnamedCircle(t *testing.T) {
	each(t, func(w *world) {
		w.add("a", finalizers(held))
		w.add("b", owned("a^"))
		w.add("c", owned("a^"), finalizers(held))
		w.update("a", ownedAs("b", "v1 ConfigMap b"))
		w.exec(`DELETE FROM gc_object_reviews`)
		w.add("d", owned("b^"), finalizers(held))
		w.delete("a", foreground)
		w.drain()
		w.want("a!(" + held + ",foregroundDeletion)<b b!(foregroundDeletion)<a c!(" + held + ")<a d!(" + held + ")<b")
	})
}

// TestManyOfUnknownKind: another dependent of an owner of an unknown kind does not
// make the collector read all of its dependents again.
func TestManyOfUnknownKind(t *testing.T) {
	each(t, func(w *world) {
		w.addNamespace("n")
		for i := range maxUnknownReports + 5 {
			w.add(fmt.Sprintf("a%02d", i), ownedAs("nothing", "example.org/v1 Gadget g"))
		}
		w.drain()
		if got := strings.Count(w.warnings(), "OwnerRefUnknownKind"); got != maxUnknownReports {
			t.Errorf("reported %d dependents, want %d", got, maxUnknownReports)
		}
		w.add("late", ownedAs("nothing", "v1 ConfigMap g")) // a kind that is served
		w.drain()
		if strings.Contains(w.state(), "late") || !strings.Contains(w.state(), "a00") {
			t.Errorf("got %s", w.state())
		}
	})
}
