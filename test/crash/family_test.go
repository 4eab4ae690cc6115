package crash_test

import (
	"fmt"
	"math/rand/v2"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// held is the finalizer of the test's own controller.
const held = "crash.exeunt.dev/held"

// member is an object of a family.
type member struct {
	name   string
	owners []int // indexes in the family
	blocks bool  // blockOwnerDeletion
	held   bool
	policy metav1.DeletionPropagation // how the test deletes it; empty if not at all
	late   int                        // an owner that is added when all members exist; -1 if there is none
	uid    types.UID                  // set when it exists
}

// family is a random graph in one namespace. Its final state does not depend on the order
// in which the server works off the deletions: an owner that orphans shares its dependents
// only with owners that stay. (If the other owners go too, the last deletion decides, and
// which is last is random.)
type family struct {
	namespace string
	members   []member
}

// newFamily makes a family of a random shape.
func newFamily(namespace, name string, size int, rng *rand.Rand) *family {
	f := &family{namespace: namespace}
	background, foreground := metav1.DeletePropagationBackground, metav1.DeletePropagationForeground
	policies := []metav1.DeletionPropagation{background, foreground, background, foreground, ""}
	switch shape := rng.IntN(4); {
	case shape == 0 || size > 100:
		f.fan(size, policies[rng.IntN(2)], rng)
	case shape == 1:
		f.graph(size, []metav1.DeletionPropagation{metav1.DeletePropagationOrphan, ""}, true, rng)
	default:
		f.graph(size, policies, false, rng)
	}
	for i := range f.members {
		f.members[i].name = fmt.Sprintf("%s-%d", name, i)
	}
	return f
}

// fan is one owner of all other members.
func (f *family) fan(size int, policy metav1.DeletionPropagation, rng *rand.Rand) {
	f.members = []member{{policy: policy, late: -1}}
	for range size {
		f.members = append(f.members, member{owners: []int{0}, blocks: rng.IntN(2) == 0, late: -1})
	}
}

// graph has a few roots; every other member has one to three owners among those before it.
// Without orphaning there are cycles too.
func (f *family) graph(size int, policies []metav1.DeletionPropagation, orphaning bool, rng *rand.Rand) {
	roots := 2 + rng.IntN(3)
	for i := range size {
		m := member{blocks: rng.IntN(2) == 0, held: rng.IntN(5) == 0, late: -1}
		if i < roots {
			m.policy = policies[rng.IntN(len(policies))]
		} else {
			first, last := 0, i
			if orphaning { // children of the roots, then grandchildren
				middle := roots + (size-roots)/2
				if first, last = 0, roots; i > middle {
					first, last = roots, middle
				}
			}
			for range 1 + rng.IntN(3) {
				if owner := first + rng.IntN(last-first); !slices.Contains(m.owners, owner) {
					m.owners = append(m.owners, owner)
				}
			}
			if !orphaning && rng.IntN(80) == 0 && i+1 < size {
				m.late = i + 1 + rng.IntN(size-i-1)
			}
		}
		f.members = append(f.members, m)
	}
}

// survivors are the members that have an owner that stays, had no owner, or are orphaned.
// It is the greatest such set: a cycle keeps itself alive.
func (f *family) survivors() []bool {
	alive := make([]bool, len(f.members))
	for i, m := range f.members {
		alive[i] = m.policy == ""
	}
	keeps := func(owner int) bool {
		return alive[owner] || f.members[owner].policy == metav1.DeletePropagationOrphan
	}
	for changed := true; changed; {
		changed = false
		for i, m := range f.members {
			owners := m.owners
			if m.late >= 0 {
				owners = append(slices.Clone(owners), m.late)
			}
			if alive[i] && len(owners) > 0 && !slices.ContainsFunc(owners, keeps) {
				alive[i], changed = false, true
			}
		}
	}
	return alive
}

// references returns the ownerReferences of a member.
func (f *family) references(owners []int, blocks bool) []metav1.OwnerReference {
	var all []metav1.OwnerReference
	for _, o := range owners {
		owner := &f.members[o]
		all = append(all, metav1.OwnerReference{
			APIVersion: "v1", Kind: "ConfigMap", Name: owner.name, UID: owner.uid, BlockOwnerDeletion: &blocks,
		})
	}
	return all
}
