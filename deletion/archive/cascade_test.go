package archive

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/deletion/deletiontest"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
	cascade "github.com/exeunt/exeunt/store/cascades"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// cascades lists cascades as "Kind/name removed+remaining restored, state".
func (w *world) cascades(q kind.SourceQuery) string {
	w.Helper()
	got, err := cascades{w.archive}.List(w.Context(), kindtest.Almighty(), q)
	if err != nil {
		w.Fatal(err)
	}
	var out []string
	for _, c := range got.(*v1.CascadeList).Items {
		if c.Spec.RequestedBy != "alice" || c.Spec.RequestID == "" || c.Spec.StartedAt.IsZero() || c.Status.Removed > 0 && (c.Spec.LastRemovedAt == nil || c.Status.Bytes == 0) {
			w.Errorf("cascade %+v", c)
		}
		var read v1.CascadeSpec // by a client, which undoes the newest: of those in one second, too
		if text, err := json.Marshal(c.Spec); err != nil || json.Unmarshal(text, &read) != nil || !read.StartedAt.Equal(&c.Spec.StartedAt) || !read.LastRemovedAt.Equal(c.Spec.LastRemovedAt) {
			w.Errorf("cascade %s: a client reads %+v of %+v: %v", c.Name, read, c.Spec, err)
		}
		if ended := c.Status.State != v1.CascadeRunning && c.Status.State != v1.CascadeHeld; ended != (c.Status.ExpiresAt != nil) {
			w.Errorf("cascade %s is %s and expires at %v", c.Name, c.Status.State, c.Status.ExpiresAt)
		} else if ended && !c.Status.ExpiresAt.Equal(&metav1.Time{Time: c.Spec.LastRemovedAt.Add(time.Hour).Truncate(time.Second)}) {
			w.Errorf("cascade %s was removed at %v and expires at %v", c.Name, c.Spec.LastRemovedAt, c.Status.ExpiresAt)
		}
		out = append(out, fmt.Sprintf("%s/%s %d+%d %d %s", c.Spec.Root.Kind, c.Spec.Root.Name, c.Status.Removed, c.Status.Remaining, c.Status.Restored, c.Status.State))
	}
	return strings.Join(out, ", ")
}

// TestCascades follows deletions as units: a finished one, one that a finalizer holds,
// a namespace, and a restored one.
func TestCascades(t *testing.T) {
	each(t, func(w *world) {
		if got := w.cascades(kind.SourceQuery{}); got != "" {
			t.Errorf("before any deletion: %s", got)
		}
		a := w.create("configmaps:n/a")
		b := w.create("configmaps:n/b", a)
		w.create("configmaps:n/c", b)
		w.delete(a, background)
		if got, want := w.cascades(kind.SourceQuery{}), "ConfigMap/a 3+0 0 ended"; got != want {
			t.Errorf("after a cascade: %s, want %s", got, want)
		}

		held := w.create("configmaps:n/held")
		w.createWith("configmaps:n/stuck", func(m *metav1.ObjectMeta) {
			m.OwnerReferences, m.Finalizers = w.OwnedBy(held), []string{"example.com/x"}
			m.OwnerReferences[0].BlockOwnerDeletion = new(bool)
			*m.OwnerReferences[0].BlockOwnerDeletion = true
		})
		w.delete(held, metav1.DeletePropagationForeground)
		if got, want := w.cascades(kind.SourceQuery{}), "ConfigMap/held 0+2 0 running, ConfigMap/a 3+0 0 ended"; got != want {
			t.Errorf("with one under way: %s, want %s", got, want)
		}

		shop := w.create("namespaces:/shop")
		w.create("configmaps:shop/x")
		w.delete(shop, background)
		if got, want := w.cascades(kind.SourceQuery{Namespace: "shop"}), "Namespace/shop 2+0 0 ended"; got != want {
			t.Errorf("of the namespace: %s, want %s", got, want)
		}
		w.restore(v1.RestoreSpec{UID: b.UID})
		if got, want := w.cascades(kind.SourceQuery{Namespace: "n"}), "ConfigMap/held 0+2 0 running, ConfigMap/a 3+0 1 partly restored"; got != want {
			t.Errorf("after the restore of one object: %s, want %s", got, want)
		}
		w.restore(v1.RestoreSpec{Cascade: string(a.UID)})
		selector, err := fields.ParseSelector("metadata.name=" + string(a.UID))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := w.cascades(kind.SourceQuery{Fields: selector}), "ConfigMap/a 3+0 3 restored"; got != want {
			t.Errorf("after the restore: %s, want %s", got, want)
		}
		if _, err := (cascades{w.archive}).Get(w.Context(), kindtest.Almighty(), "other", string(a.UID)); !object.Is(err, object.NotFound) {
			t.Errorf("in another namespace: %v", err)
		}
		if _, err := (cascades{w.archive}).Delete(w.Context(), kindtest.Almighty(), "n", string(a.UID), false); !object.Is(err, object.BadRequest) {
			t.Errorf("delete: %v", err)
		}
	})
}

// TestState: a cascade runs while objects have to follow.
func TestState(t *testing.T) {
	for _, c := range []struct {
		cascade cascade.Cascade
		open    bool
		want    v1.CascadeState
	}{
		{cascade.Cascade{Held: true}, true, v1.CascadeHeld},
		{cascade.Cascade{Removed: 1}, true, v1.CascadeRunning},
		{cascade.Cascade{Removed: 2, Restored: 2}, false, v1.CascadeRestored},
		{cascade.Cascade{Removed: 2, Restored: 2, Purged: 1}, false, v1.CascadePartlyRestored},
		{cascade.Cascade{Removed: 2, Restored: 1}, false, v1.CascadePartlyRestored},
		{cascade.Cascade{Removed: 2}, false, v1.CascadeEnded},
	} {
		if got := state(&c.cascade, c.open); got != c.want {
			t.Errorf("%+v, open %v: %s, want %s", c.cascade, c.open, got, c.want)
		}
	}
}

// TestCascadeStates: a cascade whose work is in the collector's queue runs, and one that the guard holds is
// held.
func TestCascadeStates(t *testing.T) {
	each(t, func(w *world) {
		a := w.create("configmaps:n/a")
		w.create("configmaps:n/b", a)
		r := store.DeleteRequest{Key: a.Key, Options: deletiontest.With(background), Rules: w.Rules(a.Kind), Actor: "alice", RequestID: "1"}
		if _, err := w.store.Delete(w.Context(), r); err != nil {
			t.Fatal(err)
		}
		if got, want := w.cascades(kind.SourceQuery{}), "ConfigMap/a 1+1 0 running"; got != want {
			t.Errorf("before the collector: %s, want %s", got, want)
		}
		w.Collect()
		owner := w.create("configmaps:n/owner")
		w.create("configmaps:n/dependent", owner)
		r = store.DeleteRequest{Key: owner.Key, Options: deletiontest.With(background), Rules: w.Rules(a.Kind), Actor: "alice", RequestID: "2", Guarded: true, MaxCascade: 1}
		if _, err := w.store.Delete(w.Context(), r); err != nil {
			t.Fatal(err)
		}
		if got, want := w.cascades(kind.SourceQuery{}), "ConfigMap/owner 0+2 0 held, ConfigMap/a 2+0 0 ended"; got != want {
			t.Errorf("held: %s, want %s", got, want)
		}
	})
}

// TestRestoreAfterPurge: a restore of a cascade of which a part was purged is not a success.
func TestRestoreAfterPurge(t *testing.T) {
	each(t, func(w *world) {
		a := w.create("configmaps:n/a")
		b := w.create("configmaps:n/b", a)
		w.delete(a, background)
		if _, err := (source{w.archive}).Delete(w.Context(), kindtest.Almighty(), "n", string(b.UID), false); err != nil {
			t.Fatal(err)
		}
		for _, dryRun := range []bool{true, false} {
			status := w.restore(v1.RestoreSpec{Cascade: string(a.UID), DryRun: dryRun})
			w.want(status, "ConfigMap/a created", "Cascade/"+string(a.UID)+" failed")
			if last := status.Results[1]; status.Failed != 1 || last.Reason != "1 of its objects were purged from the archive" {
				t.Errorf("%d failed, %+v", status.Failed, last)
			}
		}
		c, err := (cascades{w.archive}).Get(w.Context(), kindtest.Almighty(), "n", string(a.UID))
		if err != nil || c.(*v1.Cascade).Status.Purged != 1 || c.(*v1.Cascade).Status.State != v1.CascadePartlyRestored {
			t.Errorf("the cascade is %+v, %v", c, err)
		}
	})
}

// TestArchivedExpiry: an archived object says when its cascade leaves.
func TestArchivedExpiry(t *testing.T) {
	each(t, func(w *world) {
		w.createWith("namespaces:/long", func(m *metav1.ObjectMeta) {
			m.Annotations = map[string]string{"lifecycle.exeunt.dev/archive-for": "72h"}
		})
		w.delete(w.create("configmaps:n/a"), background)
		w.delete(w.create("configmaps:long/b"), background)
		list, err := (source{w.archive}).List(w.Context(), kindtest.Almighty(), kind.SourceQuery{})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]time.Duration{"a": time.Hour, "b": 72 * time.Hour}
		for _, o := range list.(*v1.ArchivedObjectList).Items {
			one, err := (source{w.archive}).Get(w.Context(), kindtest.Almighty(), o.Namespace, o.Name)
			if err != nil {
				t.Fatal(err)
			}
			for _, got := range []*metav1.Time{o.Spec.ExpiresAt, one.(*v1.ArchivedObject).Spec.ExpiresAt} {
				if got == nil || got.Sub(o.Spec.RemovedAt.Time) != want[o.Spec.Name] {
					t.Errorf("%s was removed at %v and expires at %v", o.Spec.Name, o.Spec.RemovedAt, got)
				}
			}
		}
	})
}
