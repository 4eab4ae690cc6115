package archive

import (
	"log/slog"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/exeunt/exeunt/deletion/finalizer"
	"github.com/exeunt/exeunt/deletion/preview"
	"github.com/exeunt/exeunt/deletion/report"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
)

// served returns the kinds of this group, as a server has them.
func (w *world) served() []*kind.Kind {
	w.Helper()
	previews, err := preview.New(w.store, w.kinds, preview.Options{})
	if err != nil {
		w.Fatal(err)
	}
	reports, err := report.New(w.store, w.kinds, previews, report.Options{})
	if err != nil {
		w.Fatal(err)
	}
	removals, err := finalizer.New(w.store, w.kinds, slog.New(slog.DiscardHandler))
	if err != nil {
		w.Fatal(err)
	}
	return append(append(w.archive.Kinds(), removals.Kinds()...), previews.Kind(), reports.Kind())
}

// TestZeroClient: the zero Client reads nothing and changes nothing.
func TestZeroClient(t *testing.T) {
	each(t, func(w *world) {
		live := w.createWith("configmaps:n/live", func(m *metav1.ObjectMeta) { m.Finalizers = []string{"x.dev/hold"} })
		w.delete(live, background)
		owner := w.create("configmaps:n/owner")
		w.create("configmaps:n/child", owner)
		w.delete(owner, background)
		held := w.create("configmaps:n/held")
		w.create("configmaps:n/below", held)
		w.hold(held, background)

		name := func(o object.Object) v1.ObjectReference {
			return v1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: o.Namespace, Name: o.Name}
		}
		questions := []runtime.Object{
			&v1.Restore{Spec: v1.RestoreSpec{UID: owner.UID}},
			&v1.Restore{Spec: v1.RestoreSpec{UID: owner.UID, WithCascade: true}},
			&v1.Restore{Spec: v1.RestoreSpec{Cascade: string(owner.UID)}},
			&v1.Restore{Spec: v1.RestoreSpec{Object: &v1.ObjectName{Kind: "configmap", Namespace: "n", Name: "owner"}}},
			&v1.Restore{Spec: v1.RestoreSpec{UID: held.UID}},
			&v1.FinalizerRemoval{Spec: v1.FinalizerRemovalSpec{Object: name(live), Finalizer: "x.dev/hold", Reason: "test"}},
			&v1.FinalizerRemoval{Spec: v1.FinalizerRemovalSpec{Object: v1.ObjectReference{UID: live.UID}, Finalizer: "x.dev/hold", Reason: "test"}},
			&v1.DeletionPreview{Spec: v1.DeletionPreviewSpec{Object: name(live)}},
			&v1.DeletionPreview{Spec: v1.DeletionPreviewSpec{Object: v1.ObjectReference{UID: live.UID}}},
			&v1.DeletionReport{Spec: v1.DeletionReportSpec{Object: name(live)}},
			&v1.DeletionReport{Spec: v1.DeletionReportSpec{Object: v1.ObjectReference{UID: live.UID}}},
			&v1.DeletionReport{Spec: v1.DeletionReportSpec{Namespace: "n"}},
		}
		before := w.store.Revision()
		var zero kind.Client
		asked := 0
		for _, k := range w.served() {
			if k.Source != nil {
				for _, uid := range []string{string(owner.UID), string(held.UID)} {
					if got, err := k.Source.Get(w.Context(), zero, "n", uid); err == nil {
						w.Errorf("get %s %s: %v", k.Plural, uid, got)
					}
					if got, err := k.Source.Delete(w.Context(), zero, "n", uid, false); err == nil {
						w.Errorf("delete %s %s: %v", k.Plural, uid, got)
					}
				}
				list, err := k.Source.List(w.Context(), zero, kind.SourceQuery{})
				if err != nil || meta.LenList(list) != 0 {
					w.Errorf("list %s: %v, %v", k.Plural, list, err)
				}
			}
			for _, q := range questions {
				if k.Name != kindOf(q) {
					continue
				}
				asked++
				got, err := k.Answer(w.Context(), q.DeepCopyObject(), kind.Call{Client: zero})
				if r, ok := got.(*v1.DeletionReport); ok && err == nil && r.Status.State == v1.DoesNotExist && len(r.Status.Reasons) == 0 {
					continue // as for any uid
				}
				if err == nil {
					w.Errorf("%s %+v: %v", k.Name, q, got)
				}
			}
		}
		if after := w.store.Revision(); asked != len(questions) || after != before {
			w.Errorf("asked %d questions of %d; the revision was %d and is %d", asked, len(questions), before, after)
		}
	})
}

func kindOf(obj runtime.Object) string {
	gvks, _, err := v1.Scheme().ObjectKinds(obj)
	if err != nil {
		gvks, _, err = scheme().ObjectKinds(obj)
	}
	if err != nil {
		panic(err)
	}
	return gvks[0].Kind
}
