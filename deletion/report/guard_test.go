package report

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestGuard: the only reason of a held deletion is the guard, with the number that
// preview.TestGuardForeseen counts: without Events, and without objects that another owner
// keeps.
func TestGuard(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		for _, c := range w.Family() {
			w.DeleteGuarded(c.Of.Key, metav1.DeleteOptions{}, c.Count-1)
			want := fmt.Sprintf("Guard: its deletion waits to be confirmed: %d objects would go, and %d may\n", c.Count, c.Count-1)
			if got := outline(w.report(c.Of).Reasons, ""); got != want {
				t.Errorf("%s: got %swant %s", c.Of.Key, got, want)
			}
			for range 3 {
				if _, err := w.Collector.RunOne(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
