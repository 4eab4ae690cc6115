package archive

import (
	"errors"
	"strings"
	"testing"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
