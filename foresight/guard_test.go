package foresight

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/exeunt/exeunt/foresight/v1"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// deleteGuarded deletes as a person does.
func (w *world) deleteGuarded(key object.Key, options metav1.DeleteOptions, limit int64) object.Object {
	w.t.Helper()
	result, err := w.store.Delete(w.t.Context(), store.DeleteRequest{
		Key: key, Options: options, Rules: w.rules(key.Kind), Guarded: true, MaxCascade: limit,
	})
	if err != nil {
		w.t.Fatalf("delete %s: %v", key, err)
	}
	return result.Object
}

// TestGuardForeseen: preview, warning, report and the collector agree about
// whether a deletion is held, at the limit and one below it.
func TestGuardForeseen(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		home := w.create(thing{kind: namespaces, name: "n"})
		owner := w.create(thing{namespace: "n", name: "owner"})
		other := w.create(thing{namespace: "n", name: "other"})
		for i := range 5 {
			child := w.create(thing{namespace: "n", name: fmt.Sprintf("c%d", i), owners: w.ownedBy(owner)})
			w.create(thing{namespace: "n", name: fmt.Sprintf("g%d", i), owners: w.ownedBy(child)})
		}
		w.create(thing{namespace: "n", name: "kept", owners: w.ownedBy(owner, other)})
		w.create(thing{kind: events, namespace: "n", name: "e"})
		for _, c := range []struct {
			of    object.Object
			going int64
		}{{owner, 11}, {home, 13}} {
			for _, limit := range []int64{c.going, c.going - 1} {
				w.service.opts.MaxCascade = limit
				holds := limit < c.going
				p, err := w.service.Preview(t.Context(), v1.DeletionPreviewSpec{Object: v1.ObjectReference{UID: c.of.UID}, CountsOnly: true})
				if want := (v1.Guard{Limit: limit, Deletes: c.going, Holds: holds}); err != nil || p.Guard == nil || *p.Guard != want {
					t.Fatalf("%s, limit %d: got %+v, %v", c.of.Key, limit, p.Guard, err)
				}
			}
			o := w.deleteGuarded(c.of.Key, metav1.DeleteOptions{}, c.going-1)
			text, err := w.service.Held(t.Context(), o, &metav1.DeleteOptions{})
			if err != nil || !strings.Contains(text, fmt.Sprintf("more than %d objects would go", c.going-1)) {
				t.Errorf("%s: got %q, %v", c.of.Key, text, err)
			}
			want := fmt.Sprintf("Guard: its deletion waits to be confirmed: %d objects would go, and %d may\n", c.going, c.going-1)
			if got := outline(w.report(c.of).Reasons, ""); got != want {
				t.Errorf("%s: got %swant %s", c.of.Key, got, want)
			}
			for range 3 {
				if _, err := w.collector.RunOne(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			stored := w.get(c.of.Key, c.of.UID)
			if !lifecycle.GuardOf(stored).Held {
				t.Fatalf("%s is not held: %+v", c.of.Key, stored)
			}
		}
	})
}
