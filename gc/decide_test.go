package gc

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/kind"
)

func TestClassify(t *testing.T) {
	var (
		same       = Named{Served: true, Same: true}
		sameUnder  = Named{Same: true} // its definition is gone
		other      = Named{Served: true}
		namespaced = Named{Served: true, Namespaced: true}
		unserved   = Named{}
	)
	for _, tt := range []struct {
		name      string
		namespace string // of the dependent
		named     Named
		owner     Owner
		want      Standing
	}{
		{"no such uid", "n", other, Owner{}, Dangling},
		{"no such uid, namespaced kind", "n", namespaced, Owner{}, Dangling},
		{"same namespace", "n", same, Owner{Exists: true, Namespace: "n"}, Solid},
		{"other namespace", "n", same, Owner{Exists: true, Namespace: "m"}, Dangling},
		{"cluster-scoped owner", "n", same, Owner{Exists: true}, Solid},
		{"both cluster-scoped", "", same, Owner{Exists: true}, Solid},
		{"cluster-scoped dependent, namespaced owner", "", same, Owner{Exists: true, Namespace: "n"}, Unresolvable},
		{"cluster-scoped dependent, namespaced owner gone", "", namespaced, Owner{}, Unresolvable},
		{"cluster-scoped dependent, owner gone", "", other, Owner{}, Dangling},
		{"owner waits", "n", same, Owner{Exists: true, Namespace: "n", Foreground: true}, Waiting},
		{"cluster-scoped owner waits", "n", same, Owner{Exists: true, Foreground: true}, Waiting},
		{"owner passes its grace period on", "n", same, Owner{Exists: true, Namespace: "n", Leaving: true}, Dangling},
		{"owner in another namespace waits", "n", same, Owner{Exists: true, Namespace: "m", Foreground: true}, Dangling},
		{"unresolvable owner waits", "", same, Owner{Exists: true, Namespace: "m", Foreground: true}, Unresolvable},

		{"uid of another object", "n", other, Owner{Exists: true, Namespace: "n"}, Dangling},
		{"uid of another object, which waits", "n", other, Owner{Exists: true, Namespace: "n", Foreground: true}, Dangling},
		{"uid of another object, namespaced kind, cluster-scoped dependent", "", namespaced, Owner{Exists: true}, Unresolvable},
		{"uid of another object in a namespace, cluster-scoped dependent and kind", "", other, Owner{Exists: true, Namespace: "n"}, Dangling},

		{"unserved kind", "n", unserved, Owner{}, Unknown},
		{"unserved kind, cluster-scoped dependent", "", unserved, Owner{}, Unknown},
		{"unserved kind, uid of another object", "n", unserved, Owner{Exists: true, Namespace: "n"}, Unknown},
		{"unserved kind, uid of another object, which waits", "n", unserved, Owner{Exists: true, Namespace: "n", Foreground: true}, Unknown},
		{"unserved kind, owner is there", "n", sameUnder, Owner{Exists: true, Namespace: "n"}, Solid},
		{"unserved kind, owner waits", "n", sameUnder, Owner{Exists: true, Namespace: "n", Foreground: true}, Waiting},
		{"unserved kind, owner was removed", "n", unserved, Owner{Namespace: "n"}.Gone(), Dangling},
		{"unserved kind, namespaced owner was removed, cluster-scoped dependent", "", unserved, Owner{Namespace: "n"}.Gone(), Unresolvable},
		{"unserved kind, cluster-scoped owner was removed, cluster-scoped dependent", "", unserved, Owner{}.Gone(), Dangling},
	} {
		if got := Classify(tt.namespace, tt.named, tt.owner); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestIdentify(t *testing.T) {
	kinds := kind.NewRegistry(testKinds()).Snapshot()
	reference := func(apiVersion, kind, name string) Reference {
		return ReferenceOf(&metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name})
	}
	for _, tt := range []struct {
		name  string
		ref   Reference
		owner Owner
		want  Named
	}{
		{"the same", reference("apps/v1", "Deployment", "a"), Owner{Exists: true, Kind: "deployments.apps", Name: "a"}, Named{true, true, true}},
		{"another version", reference("apps/v1beta9", "Deployment", "a"), Owner{Exists: true, Kind: "deployments.apps", Name: "a"}, Named{true, true, true}},
		{"core group", reference("v1", "Pod", "a"), Owner{Exists: true, Kind: "pods", Name: "a"}, Named{true, true, true}},
		{"cluster-scoped", reference("v1", "Namespace", "a"), Owner{Exists: true, Kind: "namespaces", Name: "a"}, Named{true, false, true}},
		{"another name", reference("v1", "Pod", "b"), Owner{Exists: true, Kind: "pods", Name: "a"}, Named{true, true, false}},
		{"another kind", reference("v1", "Secret", "a"), Owner{Exists: true, Kind: "pods", Name: "a"}, Named{true, true, false}},
		{"another group", reference("example.org/v1", "Pod", "a"), Owner{Exists: true, Kind: "pods", Name: "a"}, Named{}},
		{"not there", reference("v1", "Pod", "a"), Owner{}, Named{true, true, false}},
		{"unserved", reference("example.org/v1", "Gadget", "a"), Owner{}, Named{}},
		{"unserved, uid of something else", reference("example.org/v1", "Gadget", "a"), Owner{Exists: true, Kind: "pods", Name: "a"}, Named{}},
		{"definition gone", reference("example.org/v1", "Gadget", "a"), Owner{Exists: true, Kind: "gadgets.example.org", Name: "a"}, Named{false, false, true}},
		{"definition gone, another name", reference("example.org/v1", "Gadget", "b"), Owner{Exists: true, Kind: "gadgets.example.org", Name: "a"}, Named{}},
		{"both views of Events", reference("events.k8s.io/v1", "Event", "a"), Owner{Exists: true, Kind: "events", Name: "a"}, Named{true, true, true}},
		{"a kind that is answered and never stored", reference("authorization.k8s.io/v1", "SubjectAccessReview", "a"), Owner{}, Named{}},
	} {
		if got := Identify(kinds, tt.ref, tt.owner); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// TestDecide names owners by their standing: "s1" is solid, "d1" dangling,
// "w1" waiting, "u1" unresolvable, "k1" of an unknown kind. "d1=x" is dangling and has the uid x.
func TestDecide(t *testing.T) {
	const (
		orphans    = metav1.FinalizerOrphanDependents
		dependents = metav1.FinalizerDeleteDependents
	)
	remove := func(policy metav1.DeletionPropagation) Decision { return Decision{Action: Delete, Policy: policy} }
	unlink := func(drop ...int) Decision { return Decision{Action: Unlink, Drop: drop} }
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
		{"solid and dangling", []types.UID{"d1", "s1", "d2"}, nil, false, unlink(0, 2)},
		{"solid and waiting", []types.UID{"s1", "w1"}, nil, true, unlink(1)},
		{"solid, dangling and waiting", []types.UID{"w1", "s1", "d1"}, nil, false, unlink(0, 2)},
		{"unknown", []types.UID{"k1"}, nil, true, Decision{Action: Keep}},
		{"unknown, dangling and waiting", []types.UID{"d1", "k1", "w1"}, nil, true, unlink(0, 2)},
		{"unresolvable and dangling", []types.UID{"u1", "d1"}, nil, false, unlink(1)},
		{"dangling", []types.UID{"d1"}, nil, true, remove(background)},
		{"all dangling", []types.UID{"d1", "d2"}, nil, false, remove(background)},
		{"dangling, someone's finalizer", []types.UID{"d1"}, []string{"x/y"}, true, remove(background)},
		{"dangling, orphans its own", []types.UID{"d1"}, []string{"x/y", orphans}, true, remove(orphan)},
		{"dangling, waits for its own", []types.UID{"d1"}, []string{dependents}, false, remove(foreground)},
		{"waiting, has dependents", []types.UID{"w1"}, nil, true, remove(foreground)},
		{"waiting, has none", []types.UID{"w1"}, nil, false, remove(background)},
		{"waiting, orphans its own", []types.UID{"w1"}, []string{orphans}, true, remove(orphan)},
		{"waiting and dangling", []types.UID{"d1", "w1"}, nil, true, remove(foreground)},
		{"one uid, solid and dangling", []types.UID{"d1=x", "s1=x"}, nil, false, unlink(0)},
		{"one uid, unknown and waiting", []types.UID{"k1=x", "w1=x"}, nil, true, unlink(1)},
		{"one uid, solid and dangling, and another one", []types.UID{"s1=x", "d1=x", "d2"}, nil, false, unlink(1, 2)},
		{"one uid, both dangling", []types.UID{"d1=x", "d2=x"}, nil, true, remove(background)},
	} {
		m := metav1.ObjectMeta{Finalizers: tt.finalizers}
		for _, owner := range tt.owners {
			name, uid, found := strings.Cut(string(owner), "=")
			if !found {
				uid = name
			}
			m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{Name: name, UID: types.UID(uid)})
		}
		standing := func(r *metav1.OwnerReference) Standing {
			return map[byte]Standing{'s': Solid, 'd': Dangling, 'w': Waiting, 'u': Unresolvable, 'k': Unknown}[r.Name[0]]
		}
		if diff := cmp.Diff(tt.want, Decide(&m, standing, tt.parent)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
