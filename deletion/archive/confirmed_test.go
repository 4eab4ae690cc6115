package archive

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// TestConfirmedBy: a cascade names the client that confirmed it last while the guard held it, from then on until it leaves
// the archive. Other writes do not count, nor a confirmation of a deletion that was called off.
func TestConfirmedBy(t *testing.T) {
	each(t, func(w *world) {
		owner := w.create("configmaps:n/owner")
		w.create("configmaps:n/child", owner)
		write := func(actor string, change func(map[string]string)) {
			t.Helper()
			o, m := w.get("configmaps:n/owner")
			if m.Annotations == nil {
				m.Annotations = map[string]string{}
			}
			change(m.Annotations)
			body, err := object.WithMeta(o.Body, m)
			if err == nil {
				_, err = w.store.Update(t.Context(), store.UpdateRequest{Key: o.Key, IfRevision: o.Revision, Meta: m, Body: body, Actor: actor})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		confirm := func(actor, number string) {
			t.Helper()
			write(actor, func(a map[string]string) { a[lifecycle.ConfirmCascade] = number })
		}
		want := func(state v1.CascadeState, by string) {
			t.Helper()
			w.Collect()
			got, err := cascades{w.archive}.Get(t.Context(), kindtest.Almighty(), "n", string(owner.UID))
			if err != nil {
				t.Fatal(err)
			}
			if c := got.(*v1.Cascade); c.Status.State != state || c.Spec.ConfirmedBy != by {
				t.Errorf("the cascade is %s, confirmed by %q; want %s, %q", c.Status.State, c.Spec.ConfirmedBy, state, by)
			}
		}
		w.hold(owner, background)
		want(v1.CascadeHeld, "")
		confirm("too few", "1")
		want(v1.CascadeHeld, "too few")
		if !w.callOff(v1.RestoreSpec{UID: owner.UID}) {
			t.Fatal("not called off")
		}
		w.hold(owner, background)
		write("labels", func(a map[string]string) { a["note"] = "x" })
		want(v1.CascadeHeld, "")
		confirm("enough", "2")
		write("labels", func(a map[string]string) { a["note"] = "y" })
		want(v1.CascadeEnded, "enough")
	})
	t.Run("beforehand", func(t *testing.T) {
		each(t, func(w *world) {
			root := w.createWith("configmaps:n/root", func(m *metav1.ObjectMeta) { m.Annotations = map[string]string{lifecycle.ConfirmCascade: "2"} })
			w.create("configmaps:n/child", root)
			w.hold(root, background)
			w.Collect()
			got, err := cascades{w.archive}.Get(t.Context(), kindtest.Almighty(), "n", string(root.UID))
			if err != nil {
				t.Fatal(err)
			}
			if c := got.(*v1.Cascade); c.Status.State != v1.CascadeEnded || c.Spec.ConfirmedBy != "" {
				t.Errorf("confirmed beforehand: %s, %q", c.Status.State, c.Spec.ConfirmedBy)
			}
		})
	})
}
