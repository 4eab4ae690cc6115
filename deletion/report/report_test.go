package report

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/deletion/deletiontest"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// report returns the report on an object.
func (w *world) report(o object.Object) v1.DeletionReportStatus {
	w.T.Helper()
	status, err := w.service.Report(w.T.Context(), kindtest.Almighty(), v1.DeletionReportSpec{Object: v1.ObjectReference{UID: o.UID}})
	if err != nil {
		w.T.Fatalf("report on %s: %v", o.Key, err)
	}
	return status
}

// outline returns a tree of reasons, one per line.
func outline(reasons []v1.Reason, indent string) string {
	var b strings.Builder
	for _, r := range reasons {
		fmt.Fprintf(&b, "%s%s: %s\n", indent, r.Type, r.Message)
		b.WriteString(outline(r.Children, indent+"  "))
	}
	return b.String()
}

// managedBy returns the managedFields entry of a client that set a finalizer.
func managedBy(manager, finalizer string, at int64) metav1.ManagedFieldsEntry {
	when := metav1.Unix(at, 0)
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &when, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:finalizers":{".":{},"v:\"` + finalizer + `\"":{}}}}`),
	}
}

// TestReasons has one row for each type of reason.
func TestReasons(t *testing.T) {
	hold := []string{"example.com/hold"}
	foreground := deletiontest.With(metav1.DeletePropagationForeground)
	background := deletiontest.With(metav1.DeletePropagationBackground)
	for name, test := range map[string]struct {
		prepare func(w *world) object.Object // returns what to report on
		state   v1.State
		remain  int64
		want    string
	}{
		"not deleted": {
			prepare: func(w *world) object.Object { return w.Create(thing{Namespace: "n", Name: "a"}) },
			state:   v1.Active,
			want:    "NotDeleted: no client has asked for its deletion\n",
		},
		"expires": {
			prepare: func(w *world) object.Object {
				w.Now = time.Date(2027, 1, 1, 12, 0, 0, 0, time.UTC)
				return w.Create(thing{Kind: "jobs.batch", Namespace: "n", Name: "a", Rest: `,"spec":{"ttlSecondsAfterFinished":259200},"status":{"conditions":[{"type":"Complete","status":"True","lastTransitionTime":"2027-01-01T12:00:00Z"}]}`})
			},
			state: v1.Active,
			want: "NotDeleted: no client has asked for its deletion\n" +
				"Expires: it expires in 3d, at 2027-01-04T12:00:00Z, by spec.ttlSecondsAfterFinished\n",
		},
		"kept by an owner": {
			prepare: func(w *world) object.Object {
				owner := w.Create(thing{Namespace: "n", Name: "owner"})
				return w.Create(thing{Namespace: "n", Name: "a", Owners: w.OwnedBy(owner)})
			},
			state: v1.Active,
			want:  "NotDeleted: no client has asked for its deletion\nOwner: owned by ConfigMap owner, which exists and keeps it\n",
		},
		"an owner that is gone, and the collector not there yet": {
			prepare: func(w *world) object.Object {
				ref := w.Reference(object.Key{Kind: "configmaps", Namespace: "n", Name: "owner"}, "missing", true)
				return w.Create(thing{Namespace: "n", Name: "a", Owners: []metav1.OwnerReference{ref}})
			},
			state: v1.Active,
			want: "Owner: owned by ConfigMap owner, which does not exist or is in another namespace\n" +
				"Review: the collector reviews it next\n",
		},
		"a cluster-scoped object of a namespaced owner": {
			prepare: func(w *world) object.Object {
				owner := w.Create(thing{Namespace: "n", Name: "owner"})
				return w.Create(thing{Kind: "clusterroles.rbac.authorization.k8s.io", Name: "a", Owners: w.OwnedBy(owner)})
			},
			state: v1.Active,
			want: "NotDeleted: no client has asked for its deletion\n" +
				"Owner: owned by ConfigMap owner, which lives in a namespace while this does not: it is never collected\n",
		},
		"a finalizer, and who set it last": {
			prepare: func(w *world) object.Object {
				o := w.Create(thing{Namespace: "n", Name: "a", Finalizers: hold, Managed: []metav1.ManagedFieldsEntry{
					managedBy("first", hold[0], 100), managedBy("second", hold[0], 200), managedBy("other", "example.com/else", 300),
				}})
				w.Delete(o.Key, background)
				return o
			},
			state: v1.Deleting,
			want:  "Finalizer: finalizer example.com/hold has not been removed, which second set\n",
		},
		"a finalizer that a client without a name set": {
			prepare: func(w *world) object.Object {
				o := w.Create(thing{Namespace: "n", Name: "a", Finalizers: hold, Managed: []metav1.ManagedFieldsEntry{managedBy("unknown", hold[0], 100)}})
				w.Delete(o.Key, background)
				return o
			},
			state: v1.Deleting,
			want:  "Finalizer: finalizer example.com/hold has not been removed\n",
		},
		"a finalizer without a manager": {
			prepare: func(w *world) object.Object {
				o := w.Create(thing{Namespace: "n", Name: "a", Finalizers: hold})
				w.Delete(o.Key, background)
				return o
			},
			state: v1.Deleting,
			want:  "Finalizer: finalizer example.com/hold has not been removed\n",
		},
		"grace that is left": {
			prepare: func(w *world) object.Object {
				o := w.Create(thing{Kind: "pods", Namespace: "n", Name: "a", Rest: deletiontest.OnNode})
				w.Delete(o.Key, background)
				w.Now = w.Get(o.Key, o.UID).DeletionTimestamp.Add(-20 * time.Second)
				return o
			},
			state: v1.Deleting,
			want:  "GracePeriod: its grace period of 30s has 20s left\n",
		},
		"grace that is over": {
			prepare: func(w *world) object.Object {
				o := w.Create(thing{Kind: "pods", Namespace: "n", Name: "a", Rest: deletiontest.OnNode})
				w.Delete(o.Key, background)
				w.Now = w.Get(o.Key, o.UID).DeletionTimestamp.Add(10 * time.Second)
				return o
			},
			state: v1.Deleting,
			want:  "GracePeriod: its grace period of 30s ended 10s ago, and no client has confirmed that it has stopped\n",
		},
		"blocking dependents, as a tree": {
			prepare: func(w *world) object.Object {
				o := w.Create(thing{Namespace: "n", Name: "a"})
				middle := w.Create(thing{Namespace: "n", Name: "b", Owners: w.OwnedBy(o)})
				w.Create(thing{Namespace: "n", Name: "c", Owners: w.OwnedBy(middle), Finalizers: hold})
				w.Delete(o.Key, foreground)
				w.Collect()
				return o
			},
			state: v1.Deleting, remain: 1,
			want: `BlockingDependents: blocked by 1 dependent
  Dependent: ConfigMap b in namespace n is being deleted
    BlockingDependents: blocked by 1 dependent
      Dependent: ConfigMap c in namespace n is being deleted
        Finalizer: finalizer example.com/hold has not been removed
`,
		},
		"a dependent of two that block is told about once": {
			prepare: func(w *world) object.Object {
				o := w.Create(thing{Namespace: "n", Name: "a"})
				left := w.Create(thing{Namespace: "n", Name: "b", Owners: w.OwnedBy(o)})
				right := w.Create(thing{Namespace: "n", Name: "c", Owners: w.OwnedBy(o)})
				w.Create(thing{Namespace: "n", Name: "d", Owners: w.OwnedBy(left, right), Finalizers: hold})
				w.Delete(o.Key, foreground)
				w.Collect()
				return o
			},
			state: v1.Deleting, remain: 2,
			want: `BlockingDependents: blocked by 2 dependents
  Dependent: ConfigMap b in namespace n is being deleted
    BlockingDependents: blocked by 1 dependent
      Dependent: ConfigMap d in namespace n is being deleted
        Finalizer: finalizer example.com/hold has not been removed
  Dependent: ConfigMap c in namespace n is being deleted
    BlockingDependents: blocked by 1 dependent
      Dependent: ConfigMap d in namespace n is being deleted; see above
`,
		},
		"a paused collector": {
			prepare: func(w *world) object.Object {
				o := w.Create(thing{Namespace: "n", Name: "a"})
				w.Create(thing{Namespace: "n", Name: "b", Owners: w.OwnedBy(o)})
				if err := w.Collector.Pause(w.T.Context(), "we are looking into it"); err != nil {
					w.T.Fatal(err)
				}
				w.Delete(o.Key, foreground)
				return o
			},
			state: v1.Deleting, remain: 1,
			want: "BlockingDependents: blocked by 1 dependent\n  Dependent: ConfigMap b in namespace n is not being deleted yet\n" +
				"CollectorPaused: the collector is paused: we are looking into it\n",
		},
		"a review that is due": {
			prepare: func(w *world) object.Object {
				o := w.Create(thing{Namespace: "n", Name: "a"})
				w.Delete(o.Key, foreground)
				return o
			},
			state: v1.Deleting,
			want:  "Review: the collector reviews it next\n",
		},
		"a review that fails": {
			prepare: func(w *world) object.Object {
				o := w.Create(thing{Namespace: "n", Name: "a"})
				w.Delete(o.Key, foreground)
				w.Exec(`UPDATE gc_object_reviews SET review_count = 3, last_error = 'disk on fire', review_after = $1 WHERE uid = $2`,
					w.Now.Add(40*time.Second).UnixMilli(), string(o.UID))
				return o
			},
			state: v1.Deleting,
			want:  "Review: its review failed 3 times, last with: disk on fire; next attempt in 40s\n",
		},
		"a dependent whose delete is not admitted": {
			prepare: func(w *world) object.Object {
				o := w.Create(thing{Namespace: "n", Name: "a"})
				b := w.Create(thing{Namespace: "n", Name: "b", Owners: w.OwnedBy(o)})
				w.Delete(o.Key, foreground)
				w.Exec(`DELETE FROM gc_object_reviews`)
				w.Exec(`INSERT INTO gc_admission_reviews (uid, review_after, review_count, event, created_at, last_error) VALUES ($1, $2, 1, '', 1000, 'hook says no')`,
					string(b.UID), w.Now.Add(7*time.Second).UnixMilli())
				return o
			},
			state: v1.Deleting, remain: 1,
			want: `BlockingDependents: blocked by 1 dependent
  Dependent: ConfigMap b in namespace n is not being deleted yet
    Admission: its delete is not admitted: hook says no; asked 1 time, next in 7s
`,
		},
		"garbage that a webhook is asked about": {
			prepare: func(w *world) object.Object {
				ref := w.Reference(object.Key{Kind: "configmaps", Namespace: "n", Name: "owner"}, "missing", true)
				o := w.Create(thing{Namespace: "n", Name: "a", Owners: []metav1.OwnerReference{ref}})
				w.Exec(`INSERT INTO gc_admission_reviews (uid, review_after, review_count, event, created_at) VALUES ($1, 0, 0, '', 1000)`, string(o.UID))
				return o
			},
			state: v1.Active,
			want: "Owner: owned by ConfigMap owner, which does not exist or is in another namespace\n" +
				"Admission: the collector asks webhooks and policies about its delete\n",
		},
		"a namespace whose content is not admitted": {
			prepare: func(w *world) object.Object {
				a := w.Create(thing{Namespace: "n", Name: "a"})
				w.Delete(w.home.Key, background)
				w.Exec(`INSERT INTO gc_admission_reviews (uid, review_after, review_count, event, created_at, last_error) VALUES ($1, $2, 2, '', 1000, 'hook says no')`,
					string(a.UID), w.Now.Add(7*time.Second).UnixMilli())
				w.Exec(`DELETE FROM gc_object_reviews`)
				return w.home
			},
			state: v1.Deleting, remain: 1,
			want: `NamespaceContent: it is not empty: 1 object left
  Content: 1 of kind ConfigMap
    Content: ConfigMap a in namespace n is not being deleted yet
      Admission: its delete is not admitted: hook says no; asked 2 times, next in 7s
`,
		},
		"a review that is under way": {
			prepare: func(w *world) object.Object {
				o := w.Create(thing{Namespace: "n", Name: "a"})
				w.Delete(o.Key, foreground)
				w.Exec(`UPDATE gc_object_reviews SET claim_token = 't', claim_until = $1 WHERE uid = $2`,
					w.Now.Add(time.Minute).UnixMilli(), string(o.UID))
				return o
			},
			state: v1.Deleting,
			want:  "Review: the collector is at work on it\n",
		},
		"orphaning that waits for a controller": {
			prepare: func(w *world) object.Object {
				o := w.Create(thing{Namespace: "n", Name: "a", Generation: 2, Rest: `,"status":{"observedGeneration":1}`})
				w.Create(thing{Namespace: "n", Name: "b", Owners: w.OwnedBy(o)})
				w.Delete(o.Key, deletiontest.With(metav1.DeletePropagationOrphan))
				w.Exec(`UPDATE gc_object_reviews SET review_after = $1`, w.Now.Add(25*time.Second).UnixMilli())
				return o
			},
			state: v1.Deleting, remain: 1,
			want: "Orphaning: 1 dependent to orphan; its controller has seen generation 1, and should see 3 first, so as not to adopt them again\n" +
				"Review: the collector looks at it again in 25s\n",
		},
		"a namespace with pods that do not go": {
			prepare: func(w *world) object.Object {
				w.Create(thing{Kind: "pods", Namespace: "n", Name: "p", Finalizers: hold})
				w.Create(thing{Namespace: "n", Name: "a"})
				w.Delete(w.home.Key, background)
				w.Collect()
				return w.home
			},
			state: v1.Deleting, remain: 2,
			want: `NamespaceContent: it is not empty: 2 objects left; its pods go first
  Content: 1 of kind Pod
    Content: Pod p in namespace n is being deleted
      Finalizer: finalizer example.com/hold has not been removed
  Content: 1 of kind ConfigMap
`,
		},
		"content that waits for pods, which have their grace": {
			prepare: func(w *world) object.Object {
				p := w.Create(thing{Kind: "pods", Namespace: "n", Name: "p", Rest: deletiontest.OnNode})
				a := w.Create(thing{Namespace: "n", Name: "a"})
				w.Delete(w.home.Key, background)
				w.Collect()
				w.Now = w.Get(p.Key, p.UID).DeletionTimestamp.Add(-20 * time.Second)
				return a
			},
			state: v1.Active,
			want: `GoesWith: it goes with Namespace n, after 1 of kind Pod
  Content: Pod p in namespace n is being deleted
    GracePeriod: its grace period of 30s has 20s left
`,
		},
		"content whose turn it is": {
			prepare: func(w *world) object.Object {
				a := w.Create(thing{Namespace: "n", Name: "a"})
				w.Delete(w.home.Key, background)
				return a
			},
			state: v1.Active,
			want:  "GoesWith: it goes with Namespace n, which is being emptied\n  Review: the collector reviews it next\n",
		},
		"content of a namespace that the guard holds": {
			prepare: func(w *world) object.Object {
				owner := w.Create(thing{Namespace: "n", Name: "owner"})
				a := w.Create(thing{Namespace: "n", Name: "a", Owners: w.OwnedBy(owner)})
				w.DeleteGuarded(w.home.Key, background, 1)
				w.Collect()
				return a
			},
			state: v1.Active,
			want: "GoesWith: it goes with Namespace n, whose deletion waits to be confirmed\n" +
				"Owner: owned by ConfigMap owner, which exists and keeps it\n",
		},
		"content whose delete is not admitted": {
			prepare: func(w *world) object.Object {
				a := w.Create(thing{Namespace: "n", Name: "a"})
				w.Delete(w.home.Key, background)
				w.Exec(`DELETE FROM gc_object_reviews`)
				w.Exec(`INSERT INTO gc_admission_reviews (uid, review_after, review_count, event, created_at, last_error) VALUES ($1, $2, 2, '', 1000, 'hook says no')`,
					string(a.UID), w.Now.Add(7*time.Second).UnixMilli())
				return a
			},
			state: v1.Active,
			want: "GoesWith: it goes with Namespace n, which is being emptied\n" +
				"Admission: its delete is not admitted: hook says no; asked 2 times, next in 7s\n",
		},
		"an object whose definition goes": {
			prepare: func(w *world) object.Object {
				crd := w.Create(thing{Kind: object.Definitions, Name: "widgets.example.com", Rest: `,"spec":{"group":"example.com","names":{"plural":"widgets"}}`})
				o := w.Create(thing{Kind: deletiontest.Unserved, Namespace: "n", Name: "w"})
				w.Delete(crd.Key, background)
				return o
			},
			state: v1.Active,
			want:  "GoesWith: it goes with CustomResourceDefinition widgets.example.com, which is being emptied\n",
		},
		"a namespace held by another finalizer": {
			prepare: func(w *world) object.Object {
				ns := w.Create(thing{Kind: object.Namespaces, Name: "m", Rest: `,"spec":{"finalizers":["kubernetes","example.com/ns"]}`})
				w.Delete(ns.Key, background)
				w.Collect()
				return ns
			},
			state: v1.Deleting,
			want:  "SpecFinalizer: spec.finalizers has example.com/ns\n",
		},
		"a definition whose objects do not go": {
			prepare: func(w *world) object.Object {
				crd := w.Create(thing{Kind: object.Definitions, Name: "widgets.example.com", Rest: `,"spec":{"group":"example.com","names":{"plural":"widgets"}}`})
				o := w.Create(thing{Kind: deletiontest.Unserved, Namespace: "n", Name: "w", Finalizers: hold})
				w.Delete(crd.Key, background)
				w.Delete(o.Key, background)
				return crd
			},
			state: v1.Deleting, remain: 1,
			want: `DefinitionContent: 1 object of the kind left
  Content: widgets w in namespace n is being deleted
    Finalizer: finalizer example.com/hold has not been removed
`,
		},
		"gone, while its dependents are not": {
			prepare: func(w *world) object.Object {
				o := w.Create(thing{Namespace: "n", Name: "a"})
				w.Create(thing{Namespace: "n", Name: "b", Owners: w.OwnedBy(o)})
				w.Delete(o.Key, background)
				return o
			},
			state: v1.DoesNotExist, remain: 1,
			want: "Review: the collector reviews it next\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, w *world) {
				w.home = w.Create(thing{Kind: object.Namespaces, Name: "n"})
				o := test.prepare(w)
				status := w.report(o)
				if got := outline(status.Reasons, ""); got != test.want {
					t.Errorf("got\n%swant\n%s", got, test.want)
				}
				if status.Reasons[0].Type == v1.ReasonNotDeleted && status.Reasons[0].Resolve != "" {
					t.Errorf("the report on a live object advises %q", status.Reasons[0].Resolve)
				}
				if status.State != test.state || status.Exists != (test.state != v1.DoesNotExist) || status.Remaining != test.remain {
					t.Errorf("got state %s, exists %v, remaining %d", status.State, status.Exists, status.Remaining)
				}
				if status.ResourceVersion == "" || status.Object.UID != o.UID {
					t.Errorf("got resourceVersion %q of %v", status.ResourceVersion, status.Object)
				}
			})
		})
	}
}

// TestResolveWorks: the command in a report names the finalizer with its field.
func TestResolveWorks(t *testing.T) {
	w := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite), Options{})
	w.Create(thing{Kind: object.Namespaces, Name: "n"})
	o := w.Create(thing{Namespace: "n", Name: "a", Finalizers: []string{"example.com/x", "example.com/y"}})
	w.Delete(o.Key, metav1.DeleteOptions{})
	reasons := w.report(o).Reasons
	want := `see what keeps its controller from removing it; if there is none any more: ` +
		`exeunt finalizer remove configmap/a -n n example.com/y --reason "..."`
	if len(reasons) != 2 || reasons[1].Resolve != want {
		t.Errorf("got %+v\nwant %s", reasons, want)
	}
}

func TestCollectorOff(t *testing.T) {
	w := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite), Options{CollectorOff: true})
	w.Create(thing{Kind: object.Namespaces, Name: "n"})
	o := w.Create(thing{Namespace: "n", Name: "a"})
	w.Delete(o.Key, deletiontest.With(metav1.DeletePropagationForeground))
	want := "CollectorOff: this server runs without a collector\nReview: the collector reviews it next\n"
	if got := outline(w.report(o).Reasons, ""); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestReportIsBounded: a report on many objects is truncated.
func TestReportIsBounded(t *testing.T) {
	w := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite), Options{})
	w.Create(thing{Kind: object.Namespaces, Name: "n"})
	root := w.Create(thing{Namespace: "n", Name: "root"})
	parent := root
	for depth := range 8 {
		for i := range 12 {
			w.Create(thing{Namespace: "n", Name: fmt.Sprintf("leaf-%d-%d", depth, i), Owners: w.OwnedBy(parent), Finalizers: []string{"example.com/hold"}})
		}
		parent = w.Create(thing{Namespace: "n", Name: fmt.Sprintf("parent-%d", depth), Owners: w.OwnedBy(parent)})
	}
	w.Delete(root.Key, deletiontest.With(metav1.DeletePropagationForeground))
	w.Collect()
	status := w.report(root)
	if !status.Truncated || status.Remaining != 13 {
		t.Errorf("got truncated %v, remaining %d", status.Truncated, status.Remaining)
	}
	if n := len(status.Reasons[0].Children); n != maxChildren {
		t.Errorf("got %d children, want %d", n, maxChildren)
	}
}

// TestGone: for an object that was deleted in the background, the report names
// who removed it, who requested that, and the objects of its cascade that still exist.
func TestGone(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.Create(thing{Kind: object.Namespaces, Name: "n"})
		for i, o := range []struct{ uid, name, cascade string }{{"older", "app", "older"}, {"app", "app", "app"}, {"set", "set", "app"}} {
			w.Exec(`INSERT INTO archive (id, uid, kind, namespace, name, removed_at, actor, cascade, size) VALUES ($1, $2, 'configmaps', 'n', $3, $1, 'jo', $4, 1)`,
				int64(5000+i), o.uid, o.name, o.cascade)
		}
		w.Exec(`UPDATE archive SET actor = 'system:garbage-collector', requester = 'jo' WHERE uid = 'set'`)
		held := w.Create(thing{Namespace: "n", Name: "held", Finalizers: []string{"example.com/hold"},
			Owners: []metav1.OwnerReference{w.Reference(object.Key{Kind: "configmaps", Namespace: "n", Name: "set"}, "set", true)}})
		w.Create(thing{Namespace: "n", Name: "later", Owners: []metav1.OwnerReference{w.Reference(object.Key{Kind: "configmaps", Namespace: "n", Name: "app"}, "app", true)}})
		w.Delete(held.Key, metav1.DeleteOptions{})
		w.Exec(`UPDATE objects SET deletion_cascade = 'app' WHERE name = 'held'`)
		w.Exec(`DELETE FROM gc_object_reviews`)
		w.Exec(`INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at) VALUES ('app', 0, 0, 'removed', 0)`)
		ask := func(name string) v1.DeletionReportStatus {
			t.Helper()
			status, err := w.service.Report(t.Context(), kindtest.Almighty(), v1.DeletionReportSpec{Object: v1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "n", Name: name}})
			if err != nil {
				t.Fatal(err)
			}
			return status
		}
		got := ask("app")
		want := `Gone: it was deleted by jo, and 2 objects of its cascade still exist
  Dependent: ConfigMap held in namespace n is being deleted
    Finalizer: finalizer example.com/hold has not been removed
  Dependent: ConfigMap later in namespace n is not being deleted yet
Review: the collector reviews it next
`
		if text := outline(got.Reasons, ""); text != want || got.Exists || got.Remaining != 2 || got.Object.UID != "app" || got.Reasons[0].Since.UnixMilli() != 5001 {
			t.Errorf("got %+v\n%s\nwant\n%s", got, text, want)
		}
		if resolve := got.Reasons[0].Resolve; resolve != "to bring it back: exeunt restore configmap/app -n n" {
			t.Errorf("to resolve: %q", resolve)
		}
		if set := ask("set"); !strings.HasPrefix(set.Reasons[0].Message, "it was deleted by system:garbage-collector, at the request of jo, and 1 object") {
			t.Errorf("a collected object: %q; want the collector and the client that began the cascade", set.Reasons[0].Message)
		}
		if got := ask("unknown"); got.Exists || len(got.Reasons) != 0 || got.Object.UID != "" {
			t.Errorf("an object that never existed: %+v", got)
		}
	})
}

// TestKeepers: the part of this server that holds an object explains what it waits for,
// how its review proceeds, and which objects it waits for.
func TestKeepers(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		at := metav1.Unix(5000, 0)
		w := newWorld(t, db, Options{Keepers: map[string]Keeper{"example.com/kept": {
			Name: "the keeper",
			Explain: func(body []byte) (v1.Reason, []v1.ObjectReference) {
				if !strings.Contains(string(body), `"kept"`) {
					t.Errorf("asked about %s", body)
				}
				return v1.Reason{Message: "waits", Since: &at, Resolve: "wait"}, []v1.ObjectReference{
					{APIVersion: "v1", Kind: "ConfigMap", Namespace: "n", Name: "below"},
					{APIVersion: "v1", Kind: "ConfigMap", Namespace: "n", Name: "stays"},
					{APIVersion: "v1", Kind: "Namespace", Namespace: "n", Name: "leaves"},
					{APIVersion: "v1", Kind: "ConfigMap", Namespace: "n", Name: "nowhere"},
					{APIVersion: "example.com/v1", Kind: "Unknown", Namespace: "n", Name: "a"},
				}
			},
			Review: gc.ReviewByUID,
		}}})
		w.Create(thing{Kind: object.Namespaces, Name: "n"})
		kept := w.Create(thing{Namespace: "n", Name: "kept", Finalizers: []string{"example.com/kept"}})
		below := w.Create(thing{Namespace: "n", Name: "below", Finalizers: []string{"example.com/hold"}})
		leaves := w.Create(thing{Kind: object.Namespaces, Name: "leaves"})
		w.Create(thing{Namespace: "n", Name: "stays"})
		for _, o := range []object.Object{kept, below, leaves} {
			w.Delete(o.Key, metav1.DeleteOptions{})
		}
		w.Exec(`DELETE FROM gc_object_reviews`)
		w.Exec(`INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at, last_error) VALUES ($1, $2, 3, 'test', 1000, 'no answer')`,
			string(kept.UID), w.Now.Add(7*time.Second).UnixMilli())
		got := w.report(kept)
		want := `Finalizer: finalizer example.com/kept is the keeper's: waits
  Review: its review failed 3 times, last with: no answer; next attempt in 7s
  WaitsFor: ConfigMap below in namespace n is being deleted
    Finalizer: finalizer example.com/hold has not been removed
  WaitsFor: Namespace leaves is being deleted
`
		if text := outline(got.Reasons, ""); text != want {
			t.Errorf("got\n%s\nwant\n%s", text, want)
		}
		if r := got.Reasons[0]; r.Since == nil || !r.Since.Equal(&at) || r.Resolve != "wait" {
			t.Errorf("since %v, to resolve: %q", r.Since, r.Resolve)
		}
	})
}
