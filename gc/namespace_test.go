package gc

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/object"
)

func (w *world) getNamespace(name string) *corev1.Namespace {
	w.Helper()
	o, err := w.store.Get(context.Background(), keyOf("namespaces:/"+name))
	if err != nil {
		w.Fatal(err)
	}
	ns := &corev1.Namespace{}
	if err := object.DecodeInto(o.Body, "", namespaceKind, ns); err != nil {
		w.Fatal(err)
	}
	return ns
}

// wantConditions compares the conditions of a namespace that are true.
func (w *world) wantConditions(name string, want ...string) {
	w.Helper()
	ns := w.getNamespace(name)
	var got []string
	for _, c := range ns.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			got = append(got, fmt.Sprintf("%s %s: %s", c.Type, c.Reason, c.Message))
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		w.Errorf("conditions:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(ns.Status.Conditions) != 5 || ns.Status.Phase != corev1.NamespaceTerminating {
		w.Errorf("phase %s with %d conditions, want Terminating with 5", ns.Status.Phase, len(ns.Status.Conditions))
	}
}

func TestNamespaceGoes(t *testing.T) {
	each(t, func(w *world) {
		w.addNamespace("n")
		w.addNamespace("m")
		w.add("a")
		w.add("b", owned("a"))
		w.add("configmaps:c")
		w.add("pods:d")
		w.add("m/a")
		w.add("/a")
		w.delete("namespaces:/n", background)
		w.drain()
		w.want("/a m/a namespaces:/m")
		w.wantQueue("")
	})
}

func TestEmptyNamespaceGoes(t *testing.T) {
	each(t, func(w *world) {
		w.addNamespace("n")
		w.delete("namespaces:/n", background)
		w.want("namespaces:/n!")
		w.drain()
		w.want("")
	})
}

// TestNamespacePodsFirst walks through all phases: pods with grace, then what
// has finalizers, then nothing. The conditions are right in each.
func TestNamespacePodsFirst(t *testing.T) {
	each(t, func(w *world) {
		w.addNamespace("n")
		w.addBody("pods:p", `,"spec":{"nodeName":"x","terminationGracePeriodSeconds":30}`, finalizers(held))
		w.addBody("pods:q", `,"spec":{"nodeName":"x","terminationGracePeriodSeconds":30}`)
		w.add("a", finalizers(held))
		w.add("b")
		w.delete("namespaces:/n", background)
		w.drain()
		w.want("a(" + held + ") b namespaces:/n! pods:p!(" + held + ") pods:q!")
		w.wantConditions("n",
			"NamespaceContentRemaining SomeResourcesRemain: Some resources are remaining: pods. has 2 resource instances, things.example.com has 2 resource instances",
			"NamespaceFinalizersRemaining SomeFinalizersRemain: Some content in the namespace has finalizers remaining: "+held+" in 1 resource instances")

		w.clock.Advance(time.Minute)
		zero := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
		w.deleteWith("pods:p", zero) // grace over, finalizer left
		w.update("pods:p", finalizers())
		w.drain()
		w.want("a(" + held + ") b namespaces:/n! pods:q!")
		w.wantConditions("n",
			"NamespaceContentRemaining SomeResourcesRemain: Some resources are remaining: pods. has 1 resource instances, things.example.com has 2 resource instances")

		w.deleteWith("pods:q", zero)
		w.drain()
		w.want("a!(" + held + ") namespaces:/n!")
		w.wantConditions("n",
			"NamespaceContentRemaining SomeResourcesRemain: Some resources are remaining: things.example.com has 1 resource instances",
			"NamespaceFinalizersRemaining SomeFinalizersRemain: Some content in the namespace has finalizers remaining: "+held+" in 1 resource instances")

		w.update("a", finalizers())
		w.drain()
		w.want("")
	})
}

// TestNamespaceConditionsKeepTheirTime: only a change of status moves it.
func TestNamespaceConditionsKeepTheirTime(t *testing.T) {
	each(t, func(w *world) {
		w.addNamespace("n")
		w.add("a", finalizers(held))
		w.add("b", finalizers(held))
		w.delete("namespaces:/n", background)
		w.drain()
		first := w.getNamespace("n").Status.Conditions[3].LastTransitionTime
		w.clock.Advance(time.Minute)
		w.update("a", finalizers())
		w.drain()
		c := w.getNamespace("n").Status.Conditions[3]
		if c.Type != corev1.NamespaceContentRemaining || !c.LastTransitionTime.Equal(&first) || !strings.Contains(c.Message, "has 1 resource") {
			w.Errorf("condition %+v, first at %v", c, first)
		}
	})
}

// TestNamespaceForeignFinalizer: another controller's entry in spec.finalizers holds
// the namespace until /finalize removes it.
func TestNamespaceForeignFinalizer(t *testing.T) {
	each(t, func(w *world) {
		w.addNamespace("n", `"example.com/other"`)
		w.add("a")
		w.delete("namespaces:/n", background)
		w.drain()
		w.want("namespaces:/n!")
		w.wantConditions("n")
		if f := w.getNamespace("n").Spec.Finalizers; len(f) != 1 || f[0] != "example.com/other" {
			w.Errorf("spec.finalizers %v", f)
		}
		w.updateBody("namespaces:/n", func(body []byte) []byte {
			return bytes.Replace(body, []byte(`["example.com/other"]`), []byte(`[]`), 1)
		})
		w.want("")
	})
}

// TestNamespaceWithoutFinalizer: a namespace whose finalizer /finalize removed before the
// delete is emptied all the same.
func TestNamespaceWithoutFinalizer(t *testing.T) {
	each(t, func(w *world) {
		w.addNamespace("n")
		w.add("a", finalizers(held))
		w.updateBody("namespaces:/n", func(body []byte) []byte {
			return bytes.Replace(body, []byte(`["kubernetes"]`), []byte(`[]`), 1)
		})
		w.delete("namespaces:/n", background)
		w.drain()
		w.want("a!(" + held + ") namespaces:/n!")
		w.update("a", finalizers())
		w.drain()
		w.want("")
	})
}

// TestNamespaceMetadataFinalizer holds the namespace after it was emptied.
func TestNamespaceMetadataFinalizer(t *testing.T) {
	each(t, func(w *world) {
		w.addNamespace("n")
		w.update("namespaces:/n", finalizers(held))
		w.add("a")
		w.delete("namespaces:/n", background)
		w.drain()
		w.want("namespaces:/n!(" + held + ")")
		w.update("namespaces:/n", finalizers())
		w.want("")
	})
}

// TestNamespaceForeground: it waits for dependents, and is emptied meanwhile.
func TestNamespaceForeground(t *testing.T) {
	each(t, func(w *world) {
		w.addNamespace("n")
		w.add("/blocker", owned("namespaces:/n^"), finalizers(held))
		w.add("a")
		w.delete("namespaces:/n", foreground)
		w.drain()
		w.want("/blocker!(" + held + ")<namespaces:/n namespaces:/n!(foregroundDeletion)")
		w.update("/blocker", finalizers())
		w.drain()
		w.want("")
	})
}

func TestNamespaceOrphan(t *testing.T) {
	each(t, func(w *world) {
		w.addNamespace("n")
		w.add("/outside", owned("namespaces:/n"))
		w.add("inside", owned("namespaces:/n"))
		w.delete("namespaces:/n", orphan)
		w.drain()
		w.want("/outside")
	})
}

// TestNamespaceContentFailure: an object that cannot be deleted is named, does
// not hold up the others, and is tried again.
func TestNamespaceContentFailure(t *testing.T) {
	each(t, func(w *world) {
		w.addNamespace("n")
		w.add("a")
		w.add("b")
		w.exec(`UPDATE changes SET body = $1 WHERE name = 'a'`, []byte(`broken`))
		w.delete("namespaces:/n", background)
		w.drain()
		ns := w.getNamespace("n")
		c := ns.Status.Conditions[2]
		if c.Type != corev1.NamespaceDeletionContentFailure || c.Status != corev1.ConditionTrue || !strings.Contains(c.Message, "a") {
			w.Errorf("condition %+v", c)
		}
		w.exec(`UPDATE changes SET body = $1 WHERE name = 'a'`, []byte(`{"metadata":{"name":"a"}}`))
		w.clock.Advance(contentRetry)
		w.drain()
		w.want("")
	})
}

// TestLargeNamespace is emptied in several transactions.
func TestLargeNamespace(t *testing.T) {
	each(t, func(w *world) {
		w.addNamespace("n")
		for i := range 20 {
			w.add(fmt.Sprintf("a%02d", i))
			w.addBody(fmt.Sprintf("pods:p%02d", i), `,"spec":{}`)
		}
		w.opts.Budget = 7
		w.restart()
		w.delete("namespaces:/n", background)
		for w.turn().Claimed > 0 {
			state := w.state()
			if pods, rest := strings.Count(state, "pods:"), strings.Count(" "+state, " a"); pods > 0 && rest < 20 {
				w.Fatalf("%d pods are left and only %d others", pods, rest)
			}
		}
		w.want("")
	})
}

// TestWaves: the first wave of a namespace waits for nothing, and every later wave
// waits for it.
func TestWaves(t *testing.T) {
	const resources = "provisionedresources.provisioning.exeunt.dev"
	for _, c := range []struct{ kinds, want string }{
		{"", "[]"},
		{"configmaps secrets", "[[configmaps secrets]]"},
		{"pods", "[[pods]]"},
		{"configmaps pods secrets", "[[pods] [configmaps secrets]]"},
		{"configmaps " + resources, "[[" + resources + "] [configmaps]]"},
		{resources + " machines.example pods", "[[pods] [" + resources + "] [machines.example]]"},
	} {
		if got := fmt.Sprint(Waves(strings.Fields(c.kinds))); got != c.want {
			t.Errorf("%q leave as %s, want %s", c.kinds, got, c.want)
		}
	}
}
