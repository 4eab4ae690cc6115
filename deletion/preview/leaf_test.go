package preview

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/object"
)

// TestLeaves: a preview keeps nothing of objects that leave at once and that nothing depends on.
func TestLeaves(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.Create(thing{Kind: object.Namespaces, Name: "n"})
		root := w.Create(thing{Namespace: "n", Name: "root"})
		for i := range 30 {
			w.Create(thing{Namespace: "n", Name: fmt.Sprint("leaf-", i), Owners: w.OwnedBy(root)})
		}
		middle := w.Create(thing{Namespace: "n", Name: "middle", Owners: w.OwnedBy(root)})
		w.Create(thing{Namespace: "n", Name: "below", Owners: w.OwnedBy(middle)})
		for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground} {
			spec := v1.DeletionPreviewSpec{Object: v1.ObjectReference{UID: root.UID}, PropagationPolicy: &policy, CountsOnly: true}
			status, walk, err := w.service.preview(t.Context(), kindtest.Almighty(), spec)
			if err != nil || status.Total != 33 || len(walk.nodes) != 2 {
				t.Errorf("%s: %d objects, of which the walk keeps %d, want 33 and 2: %v", policy, status.Total, len(walk.nodes), err)
			}
		}
	})
}

// TestLeavesMetTwice: the walk counts a leaf, and only then finds that its namespace leaves too.
func TestLeavesMetTwice(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		root := w.Create(thing{Kind: "nodes", Name: "root"})
		below := w.Create(thing{Kind: "nodes", Name: "below", Owners: w.OwnedBy(root)})
		w.Create(thing{Kind: object.Namespaces, Name: "owned", Owners: w.OwnedBy(below)})
		w.Create(thing{Namespace: "owned", Name: "leaf", Owners: w.OwnedBy(root)})
		counts := map[string]int{}
		status := w.preview(root, metav1.DeleteOptions{})
		for _, item := range status.Items {
			counts[item.Kind+" "+item.Name]++
		}
		want := map[string]int{"Node root": 1, "Node below": 1, "Namespace owned": 1, "ConfigMap leaf": 1}
		if fmt.Sprint(counts) != fmt.Sprint(want) || status.Total != 4 {
			t.Errorf("the leaf of a namespace that leaves: %d objects, %v, want 4, %v", status.Total, counts, want)
		}
	})
}
