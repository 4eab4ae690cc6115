package gc

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

const held = "example.com/held" // a third party's finalizer

func TestBackground(t *testing.T) {
	each(t, func(w *world) {
		w.add("a")
		w.add("b", owned("a"))
		w.add("c", owned("b"))
		w.add("d", owned("c^"))
		w.add("bystander")
		w.delete("a", background)
		w.want("b<a bystander c<b d<c") // the owner goes first
		w.drain()
		w.want("bystander")
		w.wantQueue("")
	})
}

// TestThirdPartyFinalizer: a DELETING object is still an owner.
func TestThirdPartyFinalizer(t *testing.T) {
	each(t, func(w *world) {
		w.add("a")
		w.add("b", owned("a"), finalizers(held))
		w.add("c", owned("b"))
		w.add("d", owned("a", "b"))
		w.delete("a", background)
		w.drain()
		w.want("b!(" + held + ")<a c<b d<b")
		w.update("b", finalizers())
		w.drain()
		w.want("")
	})
}

// TestSameBatch: later reviews of a batch see the result of earlier ones: a marked
// owner exists, a removed one does not.
func TestSameBatch(t *testing.T) {
	each(t, func(w *world) {
		w.add("a")
		w.add("marked", owned("a"), finalizers(held))
		w.add("gone", owned("a"))
		w.add("keeps", owned("a", "marked"))
		w.add("goes", owned("a", "gone"))
		w.add("unlinked", owned("a", "keeps"))
		w.delete("a", background)
		w.drain()
		w.want("keeps<marked marked!(" + held + ")<a unlinked<keeps")
	})
}

func TestSeveralOwners(t *testing.T) {
	each(t, func(w *world) {
		w.add("a")
		w.add("b")
		w.add("c", owned("a", "b^"))
		w.delete("a", background)
		w.drain()
		w.want("b c<b") // the dangling reference is dropped
		w.delete("b", background)
		w.drain()
		w.want("")
	})
}

// TestLastDeletionDecides is open question 1 of the garbage collection proposal.
func TestLastDeletionDecides(t *testing.T) {
	for _, tt := range []struct {
		first, last metav1.DeletionPropagation
		want        string
	}{
		{orphan, background, ""},
		{background, orphan, "c"},
		{orphan, foreground, ""},
		{foreground, orphan, "c"},
		{background, foreground, ""},
		{orphan, orphan, "c"},
	} {
		t.Run(string(tt.first)+" then "+string(tt.last), func(t *testing.T) {
			each(t, func(w *world) {
				w.add("a")
				w.add("b")
				w.add("c", owned("a^", "b^"))
				w.delete("a", tt.first)
				w.drain()
				w.want("b c<b")
				w.delete("b", tt.last)
				w.drain()
				w.want(tt.want)
			})
		})
	}
}

// TestOwnPolicy: a dependent that carries the orphan or the foreground
// finalizer is deleted that way.
func TestOwnPolicy(t *testing.T) {
	each(t, func(w *world) {
		w.add("a")
		w.add("b", owned("a"), finalizers(metav1.FinalizerOrphanDependents))
		w.add("c", owned("b"))
		w.add("d", owned("a"), finalizers(metav1.FinalizerDeleteDependents))
		w.add("e", owned("d^"), finalizers(held))
		w.delete("a", background)
		w.drain()
		w.want("c d!(foregroundDeletion)<a e!(" + held + ")<d")
		w.update("e", finalizers())
		w.drain()
		w.want("c")
	})
}

func TestOwnerRecreated(t *testing.T) {
	each(t, func(w *world) {
		w.add("a")
		w.add("b", owned("a"))
		w.delete("a", background)
		w.add("a") // same name, other uid
		w.drain()
		w.want("a")
	})
}

func TestOwnerNeverExisted(t *testing.T) {
	each(t, func(w *world) {
		w.add("a", owned("missing"))
		w.add("b")
		w.add("c", owned("b", "missing"))
		w.drain()
		w.want("b c<b")
	})
}

func TestOwnerInAnotherNamespace(t *testing.T) {
	each(t, func(w *world) {
		w.addNamespace("n")
		w.add("m/owner")
		w.add("a", owned("m/owner"))
		w.drain()
		w.want("m/owner namespaces:/n")
		events := w.events()
		if len(events) != 1 {
			w.Fatalf("got %d events, want 1", len(events))
		}
		e := events[0]
		if e.Namespace != "n" || e.Type != "Warning" || e.Reason != "OwnerRefInvalidNamespace" ||
			e.InvolvedObject.Name != "a" || e.InvolvedObject.UID != w.uids["a"] || !strings.Contains(e.Message, `does not exist in namespace "n"`) {
			w.Errorf("event: %+v", e)
		}
	})
}

// TestNamespacedOwnerOfClusterScoped: a cluster-scoped dependent of a namespaced
// owner stays, also when the owner is gone, and one Event reports it.
func TestNamespacedOwnerOfClusterScoped(t *testing.T) {
	each(t, func(w *world) {
		w.addNamespace("default")
		w.add("configmaps:m/owner")
		w.add("/a", func(w *world, m *metav1.ObjectMeta) {
			yes := true
			m.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: w.uids["configmaps:m/owner"], BlockOwnerDeletion: &yes,
			}}
		})
		w.drain()
		w.want("/a<configmaps:m/owner configmaps:m/owner namespaces:/default")
		w.delete("configmaps:m/owner", foreground) // nor does it block
		w.drain()
		w.want("/a<configmaps:m/owner namespaces:/default")
		if _, err := w.gc.Scan(context.Background()); err != nil {
			w.Fatal(err)
		}
		w.drain()
		w.want("/a<configmaps:m/owner namespaces:/default")
		if events := w.events(); len(events) != 1 || events[0].Namespace != "default" || !strings.Contains(events[0].Message, "never collected") {
			w.Errorf("got %d events, want 1: %+v", len(events), events)
		}
	})
}

// TestClusterScopedOwner owns in every namespace.
func TestClusterScopedOwner(t *testing.T) {
	each(t, func(w *world) {
		w.add("/a")
		w.add("b", owned("/a"))
		w.add("m/c", owned("/a"))
		w.add("/d", owned("/a"))
		w.delete("/a", background)
		w.drain()
		w.want("")
	})
}

// TestNamespaceThatStays: an owner that is gone does not take a namespace that no
// client may delete; one that may be deleted goes with its owner.
func TestNamespaceThatStays(t *testing.T) {
	each(t, func(w *world) {
		const spec = `,"spec":{"finalizers":["kubernetes"]},"status":{"phase":"Active"}`
		w.add("/a")
		w.addBody("namespaces:/default", spec, owned("/a"))
		w.addBody("namespaces:/shop", spec, owned("/a"))
		w.add("default/b")
		w.delete("/a", background)
		w.drain()
		w.want("default/b namespaces:/default</a")
	})
}

// TestForegroundWithNamespaceThatStays: an owner in foreground deletion does not wait
// for a namespace that no client may delete. In Kubernetes it waits for ever.
func TestForegroundWithNamespaceThatStays(t *testing.T) {
	each(t, func(w *world) {
		w.add("/a")
		w.addBody("namespaces:/default", `,"spec":{"finalizers":["kubernetes"]},"status":{"phase":"Active"}`, owned("/a^"))
		w.add("/b", owned("/a^"))
		w.delete("/a", foreground)
		w.drain()
		w.want("namespaces:/default</a")
	})
}

// TestCycleWithoutRoot: Kubernetes leaves a cycle alone whose members keep each
// other, and so do we, until one of them is deleted.
func TestCycleWithoutRoot(t *testing.T) {
	each(t, func(w *world) {
		w.add("root")
		w.add("a", owned("root"))
		w.add("b", owned("a"))
		w.update("a", owned("b"))
		w.delete("root", background)
		w.drain()
		w.want("a<b b<a")
		w.delete("a", background)
		w.drain()
		w.want("")
	})
}

// TestGracefulDependent: a bound pod gets its grace period.
func TestGracefulDependent(t *testing.T) {
	each(t, func(w *world) {
		w.add("a")
		w.addBody("pods:b", `,"spec":{"nodeName":"x","terminationGracePeriodSeconds":30}`, owned("a"))
		w.addBody("pods:c", `,"spec":{}`, owned("a"))
		w.delete("a", background)
		w.drain()
		w.want("pods:b!<a")
		zero := int64(0)
		w.deleteWith("pods:b", metav1.DeleteOptions{GracePeriodSeconds: &zero})
		w.want("")
	})
}

// TestBudget: a cascade that exceeds the budget of a transaction continues in the next.
func TestBudget(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := newWorld(t, db, Options{Budget: 3})
		for _, policy := range []metav1.DeletionPropagation{background, foreground, orphan} {
			w.add("root")
			want := []string{}
			for _, name := range strings.Split("a b c d e f g h i j", " ") {
				w.add(name, owned("root^"))
				want = append(want, name)
				w.add(name+"1", owned(name+"^"))
				want = append(want, name+"1<"+name)
			}
			w.delete("root", policy)
			before := w.store.Revision()
			w.turn()
			if made := w.store.Revision() - before; made > 3 {
				w.Errorf("%s: one turn made %d changes, want at most 3", policy, made)
			}
			w.drain()
			if policy != orphan {
				w.want("")
				continue
			}
			w.want(strings.Join(want, " "))
		}
	})
}

func TestScan(t *testing.T) {
	each(t, func(w *world) {
		w.add("a")
		w.add("b", owned("a"))
		w.add("c", owned("c0"))
		w.add("d")
		w.add("e", owned("d^"))
		w.delete("a", background)
		w.delete("d", foreground)
		w.exec(`DELETE FROM gc_object_reviews`) // as if the triggers had not been there
		w.drain()
		w.want("b<a c<never-c0 d!(foregroundDeletion) e<d")
		if added, err := w.gc.Scan(context.Background()); err != nil || added != 3 {
			w.Errorf("scan: %d, %v; want 3", added, err)
		}
		w.drain()
		w.want("")
		if added, err := w.gc.Scan(context.Background()); err != nil || added != 0 {
			w.Errorf("second scan: %d, %v; want 0", added, err)
		}
	})
}

// TestScanPages: owners that are missing are found on every page, among those
// that are there, and each once however many refer to it.
func TestScanPages(t *testing.T) {
	each(t, func(w *world) {
		w.add("lives")
		w.add("a", owned("lives"))
		w.add("b", owned("lives"))
		const missing = 2*scanPage + 1
		w.exec(fmt.Sprintf(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
			INSERT INTO owners (dependent, owner_uid, blocking, controller)
			SELECT w.dependent, CASE WHEN i %% 2 = 0 THEN 'a' ELSE 'z' END || i, w.blocking, w.controller FROM owners w, n`, missing))
		w.exec(`DELETE FROM gc_object_reviews`)
		if added, err := w.gc.Scan(context.Background()); err != nil || added != missing {
			w.Errorf("scan: %d, %v; want %d", added, err, missing)
		}
	})
}

// TestScanPagesOfDeleting: objects that wait for the collector are found on every page.
func TestScanPagesOfDeleting(t *testing.T) {
	each(t, func(w *world) {
		const waiting = 2*scanPage + 1
		err := w.store.Transact(w.Context(), func(tx *store.Tx) error {
			for i := range waiting {
				r := storetest.Object(w, keyOf(fmt.Sprint("d", i)), "", func(m *metav1.ObjectMeta) {
					m.Finalizers, m.DeletionTimestamp = []string{metav1.FinalizerDeleteDependents}, &metav1.Time{Time: tx.Now}
				})
				tx.Create(r.Key, &r.Meta, r.Body)
			}
			return nil
		})
		if err != nil {
			w.Fatal(err)
		}
		w.exec(`DELETE FROM gc_object_reviews`)
		if added, err := w.gc.Scan(context.Background()); err != nil || added != waiting {
			w.Errorf("scan: %d, %v; want %d", added, err, waiting)
		}
	})
}

// events reads the events that were written.
func (w *world) events() []corev1.Event {
	w.Helper()
	var events []corev1.Event
	for _, r := range w.rows() {
		if r.key.Kind == "events" {
			var e corev1.Event
			if err := object.DecodeInto(r.body, "", corev1.SchemeGroupVersion.WithKind("Event"), &e); err != nil {
				w.Fatal(err)
			}
			events = append(events, e)
		}
	}
	return events
}
