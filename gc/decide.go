package gc

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Standing is what an owner is to one of its dependents.
type Standing int

// The standings of the garbage collection proposal, as Kubernetes implements them today.
const (
	// Solid owners exist: they keep the dependent.
	Solid Standing = iota + 1
	// Dangling references have no owner: no object of that kind, name and uid
	// exists in a namespace where the dependent may have an owner.
	Dangling
	// Waiting owners are in foreground deletion: they exist until their dependents
	// are gone.
	Waiting
	// Unresolvable references are those of a cluster-scoped dependent to a
	// namespaced owner, also after the owner is gone: a reference names no
	// namespace. They keep the dependent, and an Event reports them.
	Unresolvable
	// Unknown references name a kind that this server does not serve, so the
	// collector cannot look up the owner. They keep the dependent until the kind is
	// served, and an Event reports them.
	Unknown
)

// Owner is what the database has about the uid that a reference names.
type Owner struct {
	Exists     bool   // an object has the uid
	Kind       string // its storage name
	Name       string
	Namespace  string // empty: cluster-scoped
	Foreground bool   // in foreground deletion: waits for its dependents
	Leaving    bool   // counts as gone: it exists only to pass its grace period on

	Removed   bool // this server removed an object with the uid
	WasInside bool // the removed object was in a namespace
}

// Gone is the owner after its removal.
func (o Owner) Gone() Owner { return Owner{Removed: true, WasInside: o.Namespace != ""} }

// Classify judges one reference of a dependent in a namespace (empty: the
// dependent is cluster-scoped). The owner is the object with the kind, the name
// and the uid of the reference; the uid alone is not enough.
//
// A removed owner of an unserved kind is gone for certain: uids are never reused,
// and this server removed that one.
func Classify(namespace string, n Named, o Owner) Standing {
	switch {
	case o.Exists && n.Same:
		return classifyExisting(namespace, o)
	case n.Served && namespace == "" && n.Namespaced, !n.Served && o.Removed && namespace == "" && o.WasInside:
		return Unresolvable
	case n.Served, o.Removed:
		return Dangling
	default:
		return Unknown
	}
}

func classifyExisting(namespace string, o Owner) Standing {
	switch {
	case namespace == "" && o.Namespace != "":
		return Unresolvable
	case o.Namespace != "" && o.Namespace != namespace:
		return Dangling
	case o.Foreground:
		return Waiting
	case o.Leaving:
		return Dangling
	default:
		return Solid
	}
}

// Action is what the collector does with a dependent.
type Action int

// The actions.
const (
	Keep   Action = iota + 1 // nothing: it has no owners, or only solid ones
	Unlink                   // drop the references in Drop, keep the object
	Delete                   // delete it with Policy
)

// Decision is the result of Decide for one dependent.
type Decision struct {
	Action Action
	Drop   []int                      // for Unlink: the references to drop, by their index
	Policy metav1.DeletionPropagation // for Delete
}

// Decide is the garbage processor's rule. One solid owner keeps the object, and
// its dangling and waiting references are dropped. Without a solid owner the
// object is deleted, by its own policy: the finalizer it carries; or in the
// foreground if its owner waits and it has dependents itself; or in the
// background. So the last deletion decides (the garbage collection proposal's open question 1).
func Decide(m *metav1.ObjectMeta, standing func(*metav1.OwnerReference) Standing, hasDependents bool) Decision {
	if len(m.OwnerReferences) == 0 {
		return Decision{Action: Keep}
	}
	var drop []int
	waiting := false
	for i := range m.OwnerReferences {
		switch standing(&m.OwnerReferences[i]) {
		case Dangling:
			drop = append(drop, i)
		case Waiting:
			drop, waiting = append(drop, i), true
		}
	}
	// Of two references with one uid each has a standing of its own: an owner that waits
	// must not wait for an object that a reference to another kind keeps.
	solid := len(drop) < len(m.OwnerReferences)
	switch {
	case solid && len(drop) == 0:
		return Decision{Action: Keep}
	case solid:
		return Decision{Action: Unlink, Drop: drop}
	case slices.Contains(m.Finalizers, metav1.FinalizerOrphanDependents):
		return Decision{Action: Delete, Policy: metav1.DeletePropagationOrphan}
	case slices.Contains(m.Finalizers, metav1.FinalizerDeleteDependents), waiting && hasDependents:
		return Decision{Action: Delete, Policy: metav1.DeletePropagationForeground}
	default:
		return Decision{Action: Delete, Policy: metav1.DeletePropagationBackground}
	}
}
