package archive

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind/kindtest"
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
		w.delete(w.create("configmaps:n/taken"), background)
		holder := w.create("configmaps:n/taken")
		status = w.restore(v1.RestoreSpec{Object: &v1.ObjectName{Kind: "cm", Namespace: "n", Name: "taken"}})
		if len(status.Results) != 1 || status.Results[0].ConflictsWith != holder.UID {
			w.Errorf("the name is of another object now: %+v", status)
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
			if _, err := w.archive.Restore(w.Context(), kindtest.Almighty(), spec); !object.Is(err, object.BadRequest) {
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
		client := kindtest.Almighty()
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
		client := kindtest.Almighty()
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
