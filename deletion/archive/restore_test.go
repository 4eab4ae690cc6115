package archive

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const background = metav1.DeletePropagationBackground

func TestRestoreOne(t *testing.T) {
	each(t, func(w *world) {
		o := w.createWith("configmaps:n/a", func(m *metav1.ObjectMeta) {
			m.Labels, m.Finalizers = map[string]string{"app": "x"}, []string{"example.com/hold"}
		})
		w.delete(o, background)
		held, m := w.get("configmaps:n/a")
		m.Finalizers = nil
		if _, err := w.store.Update(w.Context(), store.UpdateRequest{Key: o.Key, IfRevision: held.Revision, Meta: m, Body: held.Body, Remove: true}); err != nil {
			w.Fatal(err)
		}
		if w.exists("configmaps:n/a") {
			w.Fatal("the object still exists")
		}
		status := w.restore(v1.RestoreSpec{UID: o.UID})
		w.want(status, "ConfigMap/a created")
		now, m := w.get("configmaps:n/a")
		switch {
		case now.UID != o.UID || now.UID != status.Results[0].NewUID || m.UID != now.UID:
			w.Errorf("uid %s, was %s, reported as %s", now.UID, o.UID, status.Results[0].NewUID)
		case m.DeletionTimestamp != nil || m.DeletionGracePeriodSeconds != nil || m.Generation != 7 || len(m.ManagedFields) != 1:
			w.Errorf("metadata: %+v", m)
		case m.CreationTimestamp.Unix() != 1000:
			w.Error("it has another creation time")
		case m.Labels["app"] != "x" || !slices.Equal(m.Finalizers, []string{"example.com/hold"}):
			w.Errorf("labels %v, finalizers %v", m.Labels, m.Finalizers)
		case !strings.HasSuffix(string(now.Body), `"data":{"key":"value"}}`):
			w.Errorf("body %s", now.Body)
		}
	})
}

func TestRestoreByName(t *testing.T) {
	each(t, func(w *world) {
		w.delete(w.create("configmaps:n/a"), background)
		second := w.create("configmaps:n/a")
		w.delete(second, background)
		status := w.restore(v1.RestoreSpec{Object: &v1.ObjectName{Kind: "cm", Namespace: "n", Name: "a"}})
		w.want(status, "ConfigMap/a created")
		if status.Results[0].UID != second.UID {
			w.Errorf("restored %s, want the newest, %s", status.Results[0].UID, second.UID)
		}
		for name, spec := range map[string]v1.RestoreSpec{
			"nothing named":     {},
			"two things named":  {UID: "x", Cascade: "y"},
			"unknown uid":       {UID: "x"},
			"unknown cascade":   {Cascade: "x"},
			"unknown name":      {Object: &v1.ObjectName{Kind: "cm", Namespace: "n", Name: "b"}},
			"unknown kind":      {Object: &v1.ObjectName{Kind: "gizmo", Namespace: "n", Name: "a"}},
			"no kind":           {Object: &v1.ObjectName{Name: "a"}},
			"no namespace":      {Object: &v1.ObjectName{Kind: "cm", Name: "a"}},
			"broken apiVersion": {Object: &v1.ObjectName{APIVersion: "a/b/c", Kind: "cm", Name: "a"}},
		} {
			if _, err := w.archive.Restore(w.Context(), kind.ServerClient(), spec); !object.Is(err, object.BadRequest) {
				w.Errorf("%s: got error %v, want a bad request", name, err)
			}
		}
	})
}

func TestKeep(t *testing.T) {
	each(t, func(w *world) {
		o := w.create("deployments.apps:n/a")
		w.delete(o, background)
		w.want(w.restore(v1.RestoreSpec{UID: o.UID}), "Deployment/a created")
		now, m := w.get("deployments.apps:n/a")
		if !strings.Contains(string(now.Body), `"status":{"observedGeneration":7,"replicas":1}`) || len(m.ManagedFields) != 1 || m.Generation != 7 {
			w.Errorf("status or managed fields are gone: %s", now.Body)
		}
		w.delete(now, background)
		client := kind.ServerClient()
		client.Authorize = func(_ string, r schema.GroupResource, _, _ string) error {
			if strings.HasSuffix(r.Resource, "/status") {
				return errors.New("no")
			}
			return nil
		}
		status, err := w.archive.Restore(w.Context(), client, v1.RestoreSpec{UID: now.UID})
		if err != nil || len(status.Results[0].Changes) == 0 || !strings.HasPrefix(status.Results[0].Changes[0].Field, "status") {
			w.Errorf("without the right to write its status: %+v, %v", status, err)
		}
		if now, _ = w.get("deployments.apps:n/a"); strings.Contains(string(now.Body), `observedGeneration`) {
			w.Errorf("the status came back without the right to write it: %s", now.Body)
		}
	})
}

// TestRestoreWithoutMarks: what a deletion adds to an object does not come back, so the object
// can be restored.
func TestRestoreWithoutMarks(t *testing.T) {
	each(t, func(w *world) {
		owner := w.createWith("configmaps:n/owner", func(m *metav1.ObjectMeta) {
			m.Annotations = map[string]string{lifecycle.PropagateGrace: "5"}
		})
		w.create("configmaps:n/child", owner)
		w.delete(owner, background)
		w.want(w.restore(v1.RestoreSpec{UID: owner.UID}), "ConfigMap/owner created")
		if _, m := w.get("configmaps:n/owner"); len(m.Finalizers) > 0 || m.Annotations[lifecycle.PropagateGrace] != "5" {
			w.Errorf("restored as %+v", m)
		}
	})
}

// TestRestoreCascade deletes three generations with each propagation policy and restores
// them as a unit.
func TestRestoreCascade(t *testing.T) {
	for _, policy := range []metav1.DeletionPropagation{background, metav1.DeletePropagationForeground} {
		t.Run(string(policy), func(t *testing.T) {
			each(t, func(w *world) {
				owner := w.create("deployments.apps:n/owner")
				other := w.create("configmaps:n/other")
				child := w.create("configmaps:n/child", owner)
				w.create("configmaps:n/grandchild", child)
				for _, name := range []string{"b", "c", "d", "e"} { // more than one transaction restores
					w.create("configmaps:n/"+name, owner)
				}
				w.create("configmaps:n/shared", owner, other)
				w.delete(owner, policy)
				if w.exists("configmaps:n/grandchild") || !w.exists("configmaps:n/shared") {
					w.Fatal("the collector did not remove the whole cascade")
				}
				dry := w.restore(v1.RestoreSpec{Cascade: string(owner.UID), DryRun: true})
				if dry.Created != 7 || w.exists("deployments.apps:n/owner") || w.exists("configmaps:n/child") {
					w.Fatalf("dry run: %+v", dry)
				}
				status := w.restore(v1.RestoreSpec{Cascade: string(owner.UID)})
				if status.Created != 7 || !status.Complete || status.Results[0].Name != "owner" || status.Results[6].Name != "grandchild" {
					w.Errorf("results: %+v", status)
				}
				now, m := w.get("deployments.apps:n/owner")
				if len(m.Finalizers) > 0 {
					w.Errorf("finalizers of the deletion came back: %v", m.Finalizers)
				}
				nowChild, m := w.get("configmaps:n/child")
				if m.OwnerReferences[0].UID != now.UID {
					w.Errorf("the child refers to %s, the owner is %s", m.OwnerReferences[0].UID, now.UID)
				}
				if _, m = w.get("configmaps:n/grandchild"); m.OwnerReferences[0].UID != nowChild.UID {
					w.Errorf("the grandchild refers to %s, the child is %s", m.OwnerReferences[0].UID, nowChild.UID)
				}
				// A second restore does nothing; a cascade that was restored and deleted
				// again has a new id.
				again := w.restore(v1.RestoreSpec{Cascade: string(owner.UID)})
				if again.Created != 0 || again.Skipped != 7 || again.Results[0].Reason != "it was restored before" || again.Results[0].NewUID != again.Results[0].UID {
					w.Errorf("second restore: %+v", again)
				}
				w.delete(now, policy)
				second := w.restore(v1.RestoreSpec{UID: now.UID, WithCascade: true, DryRun: true})
				if second.Created != 7 {
					w.Errorf("dry run of the second restore: %+v", second)
				}
				if third := w.restore(v1.RestoreSpec{UID: now.UID, WithCascade: true}); third.Created != 7 {
					w.Errorf("restore of what was restored: %+v", third)
				}
			})
		})
	}
}

// TestRestoreNotTheLate: a controller that has not seen the deletion creates missing
// objects again, with dependents; a restore leaves those out.
func TestRestoreNotTheLate(t *testing.T) {
	each(t, func(w *world) {
		owner := w.create("deployments.apps:n/owner")
		w.delete(w.create("configmaps:n/child"), background) // alone: not of the cascade
		child := w.create("configmaps:n/child", owner)
		w.create("configmaps:n/grandchild", child)
		w.delete(owner, background)
		late := w.create("configmaps:n/child", owner)
		w.create("configmaps:n/grandchild-2", late)
		w.Collect()
		if w.exists("configmaps:n/child") || w.exists("configmaps:n/grandchild-2") {
			w.Fatal("the collector did not remove the late objects")
		}
		status := w.restore(v1.RestoreSpec{Cascade: string(owner.UID)})
		w.want(status, "Deployment/owner created", "ConfigMap/child created", "ConfigMap/child skipped",
			"ConfigMap/grandchild created", "ConfigMap/grandchild-2 skipped")
		if got := status.Results[1].UID; got != child.UID {
			w.Errorf("restored %s, want the original %s; the late one is %s", got, child.UID, late.UID)
		}
		for _, i := range []int{2, 4} {
			if got := status.Results[i].Reason; !strings.HasPrefix(got, "it was created during the cascade") {
				w.Errorf("reason %q", got)
			}
		}
		again := w.restore(v1.RestoreSpec{Cascade: string(owner.UID)})
		if again.Created != 0 || again.Skipped != 5 {
			w.Errorf("second restore: %+v", again)
		}
		byName := w.restore(v1.RestoreSpec{Object: &v1.ObjectName{Kind: "cm", Namespace: "n", Name: "child"}})
		if r := byName.Results[0]; r.UID != child.UID || r.Reason != "it was restored before" {
			w.Errorf("by name: %+v", r)
		}
	})
}

// TestRestoreNotTheLateOfMany: however often a controller created it again, the restore
// finds the original.
func TestRestoreNotTheLateOfMany(t *testing.T) {
	each(t, func(w *world) {
		owner := w.create("deployments.apps:n/owner")
		child := w.create("configmaps:n/child", owner)
		w.delete(owner, background)
		tx, err := w.db.Begin(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		defer tx.Rollback()
		var b sqldb.Batch
		b.Exec(`
INSERT INTO archive (id, uid, kind, namespace, name, removed_at, actor, cascade, size)
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < CAST($2 AS bigint))
SELECT 1000000 + n.i, 'late-' || n.i, a.kind, a.namespace, a.name, a.removed_at, a.actor, a.cascade, 0
FROM n CROSS JOIN archive a WHERE a.uid = $1`, string(child.UID), planPage)
		if err := errors.Join(tx.Send(w.Context(), &b), tx.Commit(w.Context())); err != nil {
			w.Fatal(err)
		}
		status := w.restore(v1.RestoreSpec{Object: &v1.ObjectName{Kind: "cm", Namespace: "n", Name: "child"}})
		w.want(status, "ConfigMap/child created")
		if got := status.Results[0].UID; got != child.UID {
			w.Errorf("restored %s, want %s", got, child.UID)
		}
	})
}

// TestRestoreNamespace: the whole content is restored with the namespace, with Secrets,
// unless the archive drops them.
func TestRestoreNamespace(t *testing.T) {
	t.Parallel()
	for outcome, o := range map[string]store.ArchiveOptions{
		"created": {For: time.Hour},
		"failed":  {For: time.Hour, DropSecrets: true},
	} {
		t.Run("Secrets "+outcome, func(t *testing.T) {
			dbtest.Each(t, func(t *testing.T, db *sqldb.DB) { restoreNamespace(newWorldOf(t, db, o), outcome) })
		})
	}
}

func restoreNamespace(w *world, secret string) {
	ns := w.create("namespaces:/shop")
	w.create("configmaps:shop/a")
	w.create("secrets:shop/s")
	w.delete(w.create("configmaps:shop/before"), background)
	w.delete(ns, background)
	if w.exists("namespaces:/shop") {
		w.Fatal("the namespace is still there")
	}
	// A restore of one object alone: the plan names what is missing.
	alone := w.restore(v1.RestoreSpec{Object: &v1.ObjectName{Kind: "configmap", Namespace: "shop", Name: "a"}, DryRun: true})
	w.want(alone, "ConfigMap/a failed")
	if !strings.Contains(alone.Results[0].Reason, `namespaces "shop" not found`) {
		w.Errorf("reason %q", alone.Results[0].Reason)
	}
	want := []string{"Namespace/shop created", "ConfigMap/a created", "Secret/s " + secret}
	w.want(w.restore(v1.RestoreSpec{Cascade: string(ns.UID), DryRun: true}), want...)
	if w.exists("namespaces:/shop") {
		w.Fatal("the dry run made the namespace")
	}
	w.want(w.restore(v1.RestoreSpec{Cascade: string(ns.UID)}), want...)
	now, _ := w.get("namespaces:/shop")
	if !strings.Contains(string(now.Body), `"phase":"Active"`) {
		w.Errorf("the namespace is %s", now.Body)
	}
	if w.exists("secrets:shop/s") != (secret == "created") || !w.exists("configmaps:shop/a") || w.exists("configmaps:shop/before") {
		w.Error("the content is not what went with the namespace")
	}
}

func TestRestoreOverwritesNothing(t *testing.T) {
	each(t, func(w *world) {
		owner := w.create("configmaps:n/owner")
		w.create("configmaps:n/child", owner)
		w.delete(owner, background)
		taken := w.create("configmaps:n/owner")
		status := w.restore(v1.RestoreSpec{Cascade: string(owner.UID)})
		w.want(status, "ConfigMap/owner skipped", "ConfigMap/child created")
		if status.Complete || status.Conflicts != 1 {
			w.Errorf("complete without the owner: %+v", status)
		}
		if r := status.Results[0].Reason; !strings.Contains(r, string(taken.UID)) {
			w.Errorf("reason %q does not name the object that has the name", r)
		}
		if now, _ := w.get("configmaps:n/owner"); now.UID != taken.UID || now.Revision != taken.Revision {
			w.Errorf("the other object was touched: %+v", now)
		}
		// Another object has the name of the owner: the restore omits the reference.
		if _, m := w.get("configmaps:n/child"); len(m.OwnerReferences) != 0 || len(status.Results[1].Warnings) != 1 {
			w.Errorf("references %v, warnings %q", m.OwnerReferences, status.Results[1].Warnings)
		}
		// The name of an object that is being deleted will be free.
		gone := w.create("configmaps:n/gone")
		w.delete(gone, background)
		w.delete(w.createWith("configmaps:n/gone", func(m *metav1.ObjectMeta) { m.Finalizers = []string{"x/y"} }), background)
		w.want(w.restore(v1.RestoreSpec{UID: gone.UID}), "ConfigMap/gone awaited")
	})
}

// TestPartlyPermitted: a cascade of which the client may create a part only is not complete.
func TestPartlyPermitted(t *testing.T) {
	each(t, func(w *world) {
		owner := w.create("configmaps:n/owner")
		w.create("secrets:n/child", owner)
		w.delete(owner, background)
		client := kind.ServerClient()
		client.Authorize = func(verb string, r schema.GroupResource, _, name string) error {
			if verb == "create" && r.Resource == "secrets" {
				return apierrors.NewForbidden(r, name, errors.New("no"))
			}
			return nil
		}
		status, err := w.archive.Restore(w.Context(), client, v1.RestoreSpec{Cascade: string(owner.UID)})
		if err != nil || status.Complete || status.Created != 1 || status.LeftBehind != 1 {
			w.Errorf("got %+v, %v", status, err)
		}
	})
}

// TestOwnersElsewhere: owners that are not part of the restore.
func TestOwnersElsewhere(t *testing.T) {
	each(t, func(w *world) {
		alive, dead, leaving := w.create("configmaps:n/alive"), w.create("configmaps:n/dead"),
			w.createWith("configmaps:n/leaving", func(m *metav1.ObjectMeta) { m.Finalizers = []string{"x/y"} })
		child := w.create("configmaps:n/child", alive, dead, leaving)
		w.delete(child, background)
		w.delete(leaving, background)
		w.delete(dead, background)
		status := w.restore(v1.RestoreSpec{UID: child.UID})
		w.want(status, "ConfigMap/child created")
		_, m := w.get("configmaps:n/child")
		if len(m.OwnerReferences) != 1 || m.OwnerReferences[0].UID != alive.UID || len(status.Results[0].Warnings) != 2 {
			w.Errorf("references %v, warnings %q", m.OwnerReferences, status.Results[0].Warnings)
		}
		// An owner that was restored separately is found.
		owner := w.create("configmaps:n/owner")
		child = w.create("configmaps:n/late", owner)
		w.delete(owner, background)
		w.restore(v1.RestoreSpec{UID: owner.UID})
		w.restore(v1.RestoreSpec{UID: child.UID})
		now, _ := w.get("configmaps:n/owner")
		if _, m = w.get("configmaps:n/late"); len(m.OwnerReferences) != 1 || m.OwnerReferences[0].UID != now.UID {
			w.Errorf("references %v, the owner is %s", m.OwnerReferences, now.UID)
		}
	})
}

// TestInterruptedRestore stops a restore between two objects, as a crash does, and repeats
// it.
func TestInterruptedRestore(t *testing.T) {
	each(t, func(w *world) {
		owner := w.create("configmaps:n/owner")
		w.create("configmaps:n/grandchild", w.create("configmaps:n/child", owner))
		w.delete(owner, background)
		spec := v1.RestoreSpec{Cascade: string(owner.UID)}
		r := w.archive.begin(kind.ServerClient(), spec, w.names())
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
		status, err := w.archive.Restore(ctx, kind.ServerClient(), spec)
		if err != nil || status.Complete || len(status.Results) != 0 {
			w.Errorf("late: %+v, %v", status, err)
		}
		ctx, cancel = context.WithCancel(w.Context())
		cancel()
		if _, err := w.archive.Restore(ctx, kind.ServerClient(), spec); !errors.Is(err, context.Canceled) {
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
		if _, err := first.Restore(ctx, kind.ServerClient(), spec); !errors.Is(err, context.Canceled) {
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
				status, err := w.archive.Restore(w.Context(), kind.ServerClient(), v1.RestoreSpec{Cascade: string(owner.UID)})
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

// TestRestoreCircle: owners in a cycle are restored, without the reference that had to be
// cut.
func TestRestoreCircle(t *testing.T) {
	each(t, func(w *world) {
		root := w.create("configmaps:n/root")
		a := w.create("configmaps:n/a", root)
		b := w.create("configmaps:n/b", a)
		w.change("configmaps:n/a", func(m *metav1.ObjectMeta) { m.OwnerReferences = w.OwnedBy(root, b) })
		for _, o := range []object.Object{root, a} { // b keeps a, so a is deleted separately, in its own cascade
			w.delete(o, background)
		}
		if w.exists("configmaps:n/a") || w.exists("configmaps:n/b") {
			w.Fatal("the cycle still exists")
		}
		status := w.restore(v1.RestoreSpec{Cascade: string(a.UID)})
		if status.Created != 2 || !w.exists("configmaps:n/a") || !w.exists("configmaps:n/b") {
			w.Errorf("restored %+v", status)
		}
		if warnings := len(status.Results[0].Warnings) + len(status.Results[1].Warnings); warnings == 0 {
			w.Error("no warning names the reference that was left out")
		}
	})
}

// TestUnservedKind: an object whose kind is gone is reported as such; the others are
// restored.
func TestUnservedKind(t *testing.T) {
	each(t, func(w *world) {
		owner := w.create("configmaps:n/owner")
		w.create("gizmos.example.com:n/g", owner)
		w.delete(owner, background)
		status := w.restore(v1.RestoreSpec{Cascade: string(owner.UID)})
		w.want(status, "ConfigMap/owner created", "gizmos/g failed")
		if !strings.Contains(status.Results[1].Reason, "CustomResourceDefinition") {
			w.Errorf("reason %q", status.Results[1].Reason)
		}
	})
}
