package archive

import (
	"fmt"
	"strings"
	"testing"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// cascades lists cascades as "Kind/name removed+remaining restored".
func (w *world) cascades(q kind.SourceQuery) string {
	w.Helper()
	got, err := cascades{w.archive}.List(w.Context(), kind.ServerClient(), q)
	if err != nil {
		w.Fatal(err)
	}
	var out []string
	for _, c := range got.(*v1.CascadeList).Items {
		if c.Spec.RequestedBy != "alice" || c.Spec.RequestID == "" || c.Spec.StartedAt.IsZero() || c.Status.Removed > 0 && (c.Spec.LastRemovedAt == nil || c.Status.Bytes == 0) {
			w.Errorf("cascade %+v", c)
		}
		out = append(out, fmt.Sprintf("%s/%s %d+%d %d", c.Spec.Root.Kind, c.Spec.Root.Name, c.Status.Removed, c.Status.Remaining, c.Status.Restored))
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
		if got, want := w.cascades(kind.SourceQuery{}), "ConfigMap/a 3+0 0"; got != want {
			t.Errorf("after a cascade: %s, want %s", got, want)
		}

		held := w.create("configmaps:n/held")
		w.createWith("configmaps:n/stuck", func(m *metav1.ObjectMeta) {
			m.OwnerReferences, m.Finalizers = w.OwnedBy(held), []string{"example.com/x"}
			m.OwnerReferences[0].BlockOwnerDeletion = new(bool)
			*m.OwnerReferences[0].BlockOwnerDeletion = true
		})
		w.delete(held, metav1.DeletePropagationForeground)
		if got, want := w.cascades(kind.SourceQuery{}), "ConfigMap/held 0+2 0, ConfigMap/a 3+0 0"; got != want {
			t.Errorf("with one under way: %s, want %s", got, want)
		}

		shop := w.create("namespaces:/shop")
		w.create("configmaps:shop/x")
		w.delete(shop, background)
		if got, want := w.cascades(kind.SourceQuery{Namespace: "shop"}), "Namespace/shop 2+0 0"; got != want {
			t.Errorf("of the namespace: %s, want %s", got, want)
		}
		w.restore(v1.RestoreSpec{Cascade: string(a.UID)})
		selector, err := fields.ParseSelector("metadata.name=" + string(a.UID))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := w.cascades(kind.SourceQuery{Fields: selector}), "ConfigMap/a 3+0 3"; got != want {
			t.Errorf("after the restore: %s, want %s", got, want)
		}
		if _, err := (cascades{w.archive}).Get(w.Context(), kind.ServerClient(), "other", string(a.UID)); !object.Is(err, object.NotFound) {
			t.Errorf("in another namespace: %v", err)
		}
		if _, err := (cascades{w.archive}).Delete(w.Context(), kind.ServerClient(), "n", string(a.UID), false); !object.Is(err, object.BadRequest) {
			t.Errorf("delete: %v", err)
		}
	})
}
