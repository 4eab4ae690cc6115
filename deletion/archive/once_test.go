package archive

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// TestConfirmedOnce: the confirmation of a held deletion is for that one. A restored object does
// not have it, so the guard holds its next deletion. One that was set beforehand is the object's own
// limit, and comes back.
func TestConfirmedOnce(t *testing.T) {
	each(t, func(w *world) {
		owner := w.createWith("configmaps:n/owner", func(m *metav1.ObjectMeta) {
			m.Annotations = map[string]string{"mine": "stays"}
		})
		w.create("configmaps:n/child", owner)
		w.hold(owner, background)
		w.Collect()
		w.change("configmaps:n/owner", func(m *metav1.ObjectMeta) { m.Annotations[lifecycle.ConfirmCascade] = "2" })
		w.Collect()
		if w.exists("configmaps:n/owner") || w.exists("configmaps:n/child") {
			w.Fatal("the confirmed deletion is held")
		}
		w.restore(v1.RestoreSpec{Cascade: string(owner.UID)})
		restored, m := w.get("configmaps:n/owner")
		if _, confirmed := m.Annotations[lifecycle.ConfirmCascade]; confirmed || m.Annotations["mine"] != "stays" {
			w.Errorf("restored with %v", m.Annotations)
		}
		w.hold(restored, background)
		w.Collect()
		if _, m = w.get("configmaps:n/owner"); !lifecycle.GuardOf(&m).Held {
			w.Errorf("the second deletion is not held: %+v", m)
		}
		preset := w.createWith("configmaps:n/preset", func(m *metav1.ObjectMeta) {
			m.Annotations = map[string]string{lifecycle.ConfirmCascade: "2"}
		})
		w.delete(preset, background)
		w.restore(v1.RestoreSpec{UID: preset.UID})
		if _, m = w.get("configmaps:n/preset"); m.Annotations[lifecycle.ConfirmCascade] != "2" {
			w.Errorf("its own limit did not come back: %v", m.Annotations)
		}
	})
}

// TestUndoMarks: an object that an earlier version archived as it was removed loses the marks
// of its deletion, the confirmation too; one that was ACTIVE keeps its own.
func TestUndoMarks(t *testing.T) {
	own := map[string]string{lifecycle.ConfirmCascade: "2", lifecycle.HeldAbove: "1", "mine": "stays"}
	for name, test := range map[string]struct {
		deletion *metav1.Time
		want     string
	}{
		"DELETING": {&metav1.Time{Time: time.Unix(1000, 0)}, "map[mine:stays] [x/y]"},
		"ACTIVE":   {nil, fmt.Sprint(own, []string{lifecycle.ConfirmCascade, "x/y"})},
	} {
		m := &metav1.ObjectMeta{DeletionTimestamp: test.deletion, Annotations: own, Finalizers: []string{lifecycle.ConfirmCascade, "x/y"}}
		undoMarks(m, lifecycle.Rules{})
		if got := fmt.Sprint(m.Annotations, m.Finalizers); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

// TestMissingContainer: an object whose namespace, or definition, this restore created and
// that is gone again is failed. Only a dry run, which creates nothing, counts it as created.
func TestMissingContainer(t *testing.T) {
	each(t, func(w *world) {
		w.create("namespaces:/gone")
		inside := w.create("configmaps:gone/inside")
		w.delete(inside, background)
		for _, dry := range []bool{true, false} {
			r := w.archive.begin(kindtest.Almighty(), v1.RestoreSpec{UID: inside.UID, DryRun: dry}, w.names())
			removed := w.removed(target{UID: inside.UID})[0]
			if dry {
				w.delete(object.Object{Key: keyOf("namespaces:/gone")}, background)
			}
			unserved := *removed
			unserved.key.Kind = "widgets.example.com"
			for _, c := range []*candidate{removed, &unserved} {
				for _, container := range []object.Key{{Kind: object.Namespaces, Name: "gone"}, {Kind: object.Definitions, Name: "widgets.example.com"}} {
					r.note(&candidate{uid: "x", key: container}, "y", true)
				}
				results, err := r.level(w.Context(), []*candidate{c}, func() bool { return false })
				if want := map[bool]v1.Outcome{true: v1.Created, false: v1.Failed}[dry]; err != nil || len(results) != 1 || results[0].Outcome != want {
					w.Errorf("dry run %v, %s: %+v, %v; want %s", dry, c.key, results, err, want)
				}
			}
		}
	})
}

// TestCopyIsDeleting: a restored object that is being deleted again does not count as
// restored: it is restored when it is gone.
func TestCopyIsDeleting(t *testing.T) {
	each(t, func(w *world) {
		o := w.createWith("configmaps:n/a", func(m *metav1.ObjectMeta) { m.Finalizers = []string{"x/y"} })
		w.delete(o, background)
		w.Release(o.Key)
		w.want(w.restore(v1.RestoreSpec{UID: o.UID}), "ConfigMap/a created")
		restored, _ := w.get("configmaps:n/a")
		w.want(w.restore(v1.RestoreSpec{UID: o.UID}), "ConfigMap/a skipped")
		w.delete(restored, background)
		status := w.restore(v1.RestoreSpec{UID: o.UID})
		if r := status.Results[0]; r.Outcome != v1.Awaited || status.Waiting != 1 || status.Complete {
			w.Errorf("got %+v", status)
		}
		w.Release(o.Key)
		w.want(w.restore(v1.RestoreSpec{UID: o.UID}), "ConfigMap/a created")
	})
}

// TestChangesAreBounded: however much differs, and however.
func TestChangesAreBounded(t *testing.T) {
	object := func(name string, value int) []byte {
		fields := map[string]int{}
		for i := range 100 {
			fields[fmt.Sprint(name, i)] = value
		}
		body, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		return body
	}
	for what, is := range map[string][]byte{"changed": object("a", 2), "replaced": object("b", 1), "removed": []byte(`{}`)} {
		if got, err := v1.Changes(object("a", 1), is); err != nil || len(got) != 50 {
			t.Errorf("%s: %d changes, %v", what, len(got), err)
		}
	}
}

// TestNotYet: what is in a namespace, or of a kind, that is being deleted waits. An object that another restore has created
// since the archive was read, and that is being deleted again, has no outcome yet.
func TestNotYet(t *testing.T) {
	each(t, func(w *world) {
		o := w.create("configmaps:n/a")
		w.delete(o, background)
		c := w.removed(target{UID: o.UID})[0]
		for key, want := range map[object.Key]v1.Outcome{
			{Kind: object.Namespaces, Name: "n"}: v1.Awaited, {Kind: object.Definitions, Name: c.key.Kind}: v1.Awaited, {Kind: object.Namespaces, Name: "m"}: "",
		} {
			r := w.archive.begin(kindtest.Almighty(), v1.RestoreSpec{UID: o.UID}, w.names())
			r.deleting[key] = true
			if got := r.resultOf(c); got.Outcome != want {
				w.Errorf("while %s is being deleted: %+v", key, got)
			}
		}
		for deletion, want := range map[int64]v1.Outcome{0: v1.Skipped, 1: ""} {
			r := w.archive.begin(kindtest.Almighty(), v1.RestoreSpec{UID: o.UID}, w.names())
			g, err := r.read(w.Context(), []*candidate{c})
			if err != nil {
				w.Fatal(err)
			}
			h := store.Head{Key: o.Key, UID: o.UID}
			h.Deletion = deletion
			g.live[c.uid] = h
			var got v1.RestoreResult
			if request, err := r.prepareOne(w.Context(), g, c, &got); request != nil || err != nil || got.Outcome != want {
				w.Errorf("deletion %d: %+v, %v", deletion, got, err)
			}
		}
		k, _ := w.kinds.Snapshot().Stored(c.key.Kind)
		terminating, version := *k, *k.Versions[0]
		terminating.Refuse, terminating.Versions, version.Kind = "its definition is terminating", []*kind.Version{&version}, &terminating
		w.kinds.Put(&terminating)
		w.want(w.restore(v1.RestoreSpec{UID: o.UID}), "ConfigMap/a failed")
	})
}

// TestDryRunAsksDry: webhooks and policies learn from each call whether it is a dry run,
// also for objects that are restored in a group.
func TestDryRunAsksDry(t *testing.T) {
	each(t, func(w *world) {
		owner := w.create("configmaps:n/owner")
		w.create("configmaps:n/child", owner)
		w.delete(owner, background)
		for _, want := range []bool{true, false} {
			var mu sync.Mutex
			calls := 0
			note := func(_ context.Context, _ *kind.Version, key object.Key, _ runtime.Object, dry bool) error {
				mu.Lock()
				defer mu.Unlock()
				if calls++; dry != want {
					w.Errorf("%s: dryRun is %v, want %v", key, dry, want)
				}
				return nil
			}
			client := kindtest.Almighty()
			client.Mutate, client.Admit = note, note
			status, err := w.archive.Restore(w.Context(), client, v1.RestoreSpec{Cascade: string(owner.UID), DryRun: want})
			if err != nil || status.Created != 2 || calls < 4 {
				w.Errorf("%d calls, %+v, %v", calls, status, err)
			}
		}
	})
}
