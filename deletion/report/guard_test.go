package report

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/object"
)

// TestGuard: the only reason of a held deletion is the guard, with the number that
// preview.TestGuardForeseen counts: without Events, and without objects that another owner
// keeps.
func TestGuard(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		home := w.Create(thing{Kind: object.Namespaces, Name: "n"})
		owner := w.Create(thing{Namespace: "n", Name: "owner"})
		other := w.Create(thing{Namespace: "n", Name: "other"})
		for i := range 5 {
			child := w.Create(thing{Namespace: "n", Name: fmt.Sprintf("c%d", i), Owners: w.OwnedBy(owner)})
			w.Create(thing{Namespace: "n", Name: fmt.Sprintf("g%d", i), Owners: w.OwnedBy(child)})
		}
		w.Create(thing{Namespace: "n", Name: "kept", Owners: w.OwnedBy(owner, other)})
		w.Create(thing{Kind: object.Events, Namespace: "n", Name: "e"})
		for _, c := range []struct {
			of    object.Object
			going int64
		}{{owner, 11}, {home, 13}} {
			w.DeleteGuarded(c.of.Key, metav1.DeleteOptions{}, c.going-1)
			want := fmt.Sprintf("Guard: its deletion waits to be confirmed: %d objects would go, and %d may\n", c.going, c.going-1)
			if got := outline(w.report(c.of).Reasons, ""); got != want {
				t.Errorf("%s: got %swant %s", c.of.Key, got, want)
			}
			for range 3 {
				if _, err := w.Collector.RunOne(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
