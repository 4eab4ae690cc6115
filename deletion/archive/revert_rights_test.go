package archive

import (
	"errors"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
)

// TestRevertNeedsThePast: who may not read an object or its past reverts nothing of it, nor plans it. The rights in one
// namespace are enough to revert that, and show no namespace that had its name before.
func TestRevertNeedsThePast(t *testing.T) {
	eachRevert(t, func(w *world) {
		w.create("configmaps:n/a")
		then := w.store.Revision()
		w.put("configmaps:n/a", data("later"))
		local := func(lacks ...string) kind.Client {
			c := w.Client()
			c.Authorize = func(verb string, r schema.GroupResource, namespace, name string) error {
				if namespace == "n" && !slices.Contains(lacks, verb) {
					return nil
				}
				return apierrors.NewForbidden(r, name, errors.New("this client may not"))
			}
			return c
		}
		one := v1.RestoreSpec{Object: &v1.ObjectName{Kind: "configmap", Namespace: "n", Name: "a"}, To: object.Object{Revision: then}.ResourceVersion(), DryRun: true}
		whole := one
		whole.Object = &v1.ObjectName{Kind: "namespace", Name: "n"}
		denied := func(client kind.Client, spec v1.RestoreSpec) bool {
			status, err := w.archive.Restore(w.Context(), client, spec)
			return (apierrors.IsForbidden(err) || object.Is(err, object.Forbidden) || object.Is(err, object.NotFound)) && len(status.Results) == 0
		}
		for _, lacks := range []string{"get", "history"} {
			if !denied(local(lacks), one) || !denied(local(lacks), whole) {
				t.Errorf("without the verb %s a client plans a revert", lacks)
			}
		}
		for name, r := range w.revertNamespace(local("list"), then) {
			if name != "*" || r.Outcome != v1.Failed {
				t.Errorf("without the verb list: %s %s", name, r.Outcome)
			}
		}
		w.wantReverted(local(), then, map[string]string{"a": "changed"})

		w.delete(storedOf(w, "namespaces:/n"), background)
		w.create("namespaces:/n")
		w.create("configmaps:n/a")
		w.put("configmaps:n/a", data("again"))
		if !denied(local(), one) || !denied(local(), whole) {
			t.Error("the rights in a namespace show what had its name before")
		}
		if got := w.revertNamespace(w.Client(), then); got["a"].Outcome == "" {
			t.Errorf("who may read all namespaces: %v", got)
		}
	})
}
