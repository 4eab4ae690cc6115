package gc

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestClassify(t *testing.T) {
	for _, tt := range []struct {
		name      string
		namespace string // of the dependent
		owner     Owner
		want      Standing
	}{
		{"no such uid", "n", Owner{}, Dangling},
		{"no such uid, namespaced kind", "n", Owner{Namespaced: true}, Dangling},
		{"same namespace", "n", Owner{Exists: true, Namespace: "n"}, Solid},
		{"other namespace", "n", Owner{Exists: true, Namespace: "m"}, Dangling},
		{"cluster-scoped owner", "n", Owner{Exists: true}, Solid},
		{"both cluster-scoped", "", Owner{Exists: true}, Solid},
		{"cluster-scoped dependent, namespaced owner", "", Owner{Exists: true, Namespace: "n"}, Unresolvable},
		{"cluster-scoped dependent, namespaced owner gone", "", Owner{Namespaced: true}, Unresolvable},
		{"cluster-scoped dependent, owner gone", "", Owner{}, Dangling},
		{"owner waits", "n", Owner{Exists: true, Namespace: "n", Foreground: true}, Waiting},
		{"cluster-scoped owner waits", "n", Owner{Exists: true, Foreground: true}, Waiting},
		{"owner passes its grace period on", "n", Owner{Exists: true, Namespace: "n", Leaving: true}, Dangling},
		{"owner in another namespace waits", "n", Owner{Exists: true, Namespace: "m", Foreground: true}, Dangling},
		{"unresolvable owner waits", "", Owner{Exists: true, Namespace: "m", Foreground: true}, Unresolvable},
	} {
		if got := Classify(tt.namespace, tt.owner); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestDecide names owners by their standing: "s1" is solid, "d1" dangling,
// "w1" waiting, "u1" unresolvable.
func TestDecide(t *testing.T) {
	const (
		orphans    = metav1.FinalizerOrphanDependents
		dependents = metav1.FinalizerDeleteDependents
	)
	remove := func(policy metav1.DeletionPropagation) Decision { return Decision{Action: Delete, Policy: policy} }
	unlink := func(drop ...types.UID) Decision { return Decision{Action: Unlink, Drop: drop} }
	for _, tt := range []struct {
		name       string
		owners     []types.UID
		finalizers []string
		parent     bool
		want       Decision
	}{
		{"no owners", nil, nil, true, Decision{Action: Keep}},
		{"solid", []types.UID{"s1"}, nil, false, Decision{Action: Keep}},
		{"unresolvable", []types.UID{"u1"}, nil, false, Decision{Action: Keep}},
		{"solid and dangling", []types.UID{"d1", "s1", "d2"}, nil, false, unlink("d1", "d2")},
		{"solid and waiting", []types.UID{"s1", "w1"}, nil, true, unlink("w1")},
		{"solid, dangling and waiting", []types.UID{"w1", "s1", "d1"}, nil, false, unlink("w1", "d1")},
		{"unresolvable and dangling", []types.UID{"u1", "d1"}, nil, false, unlink("d1")},
		{"dangling", []types.UID{"d1"}, nil, true, remove(background)},
		{"all dangling", []types.UID{"d1", "d2"}, nil, false, remove(background)},
		{"dangling, someone's finalizer", []types.UID{"d1"}, []string{"x/y"}, true, remove(background)},
		{"dangling, orphans its own", []types.UID{"d1"}, []string{"x/y", orphans}, true, remove(orphan)},
		{"dangling, waits for its own", []types.UID{"d1"}, []string{dependents}, false, remove(foreground)},
		{"waiting, has dependents", []types.UID{"w1"}, nil, true, remove(foreground)},
		{"waiting, has none", []types.UID{"w1"}, nil, false, remove(background)},
		{"waiting, orphans its own", []types.UID{"w1"}, []string{orphans}, true, remove(orphan)},
		{"waiting and dangling", []types.UID{"d1", "w1"}, nil, true, remove(foreground)},
	} {
		m := metav1.ObjectMeta{Finalizers: tt.finalizers}
		for _, uid := range tt.owners {
			m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{UID: uid})
		}
		standing := func(r *metav1.OwnerReference) Standing {
			return map[byte]Standing{'s': Solid, 'd': Dangling, 'w': Waiting, 'u': Unresolvable}[r.UID[0]]
		}
		if diff := cmp.Diff(tt.want, Decide(&m, standing, tt.parent)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
