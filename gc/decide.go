package gc

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Standing is what an owner is to one of its dependents.
type Standing int

// The standings of spec 1 as Kubernetes has them today.
const (
	// Solid owners exist: they keep the dependent.
	Solid Standing = iota + 1
	// Dangling references lead nowhere: no object of that kind has that name and
	// uid where the dependent may have an owner.
	Dangling
	// Waiting owners exist only until their dependents are gone: they are
	// being deleted in the foreground.
	Waiting
	// Unresolvable references are those of a cluster-scoped dependent to a
	// namespaced owner, also after that is gone: they name no namespace. They
	// keep the dependent, and are reported.
	Unresolvable
	// Unknown references name a kind that this server does not serve, so the
	// owner cannot be looked up. They keep the dependent until the kind is
	// served, and are reported.
	Unknown
)

// Owner is what the database knows of the uid that a reference names.
type Owner struct {
	Exists     bool   // an object has the uid
	Kind       string // its storage name
	Name       string
	Namespace  string // empty: cluster-scoped
	Foreground bool   // being deleted, and waiting for its dependents
	Leaving    bool   // as good as gone: it only passes its grace period on

	Removed   bool // an object had the uid, and this server removed it
	WasInside bool // of one that was removed: it was in a namespace
}

// Gone is the owner after its removal.
func (o Owner) Gone() Owner { return Owner{Removed: true, WasInside: o.Namespace != ""} }

// Classify judges one reference of a dependent in a namespace (empty: the
// dependent is cluster-scoped). An owner is kind, name and uid: an object that
// has the uid but not the other two is not the owner.
//
// A removed owner of an unserved kind is gone for certain: a uid is never given
// twice, and this server saw that one go.
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

// Action is what is to be done with a dependent.
type Action int

// The actions.
const (
	Keep   Action = iota + 1 // nothing: it has no owners, or only solid ones
	Unlink                   // drop the references in Drop, keep the object
	Delete                   // delete it with Policy
)

// Decision is what the references of a dependent amount to.
type Decision struct {
	Action Action
	Drop   []types.UID                // for Unlink: the owners to forget
	Policy metav1.DeletionPropagation // for Delete
}

// Decide is the garbage processor's rule. One solid owner keeps the object,
// and then what dangles or waits is dropped. Without one the object goes, by
// its own policy: the finalizer it carries, or in the foreground if its owner
// waits and it has dependents of its own, or in the background. So the last
// deletion decides (spec 1's open question 1).
func Decide(m *metav1.ObjectMeta, standing func(*metav1.OwnerReference) Standing, hasDependents bool) Decision {
	if len(m.OwnerReferences) == 0 {
		return Decision{Action: Keep}
	}
	var drop, keep []types.UID
	waiting := false
	for i := range m.OwnerReferences {
		r := &m.OwnerReferences[i]
		switch standing(r) {
		case Dangling:
			drop = append(drop, r.UID)
		case Waiting:
			drop, waiting = append(drop, r.UID), true
		default:
			keep = append(keep, r.UID)
		}
	}
	// References are dropped by uid. Of two with the same uid, one that keeps
	// the object keeps both.
	solid := len(keep) > 0
	drop = slices.DeleteFunc(drop, func(uid types.UID) bool { return slices.Contains(keep, uid) })
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

// without returns the references that do not name one of the owners.
func without(references []metav1.OwnerReference, drop []types.UID) []metav1.OwnerReference {
	var kept []metav1.OwnerReference
	for _, r := range references {
		if !slices.Contains(drop, r.UID) {
			kept = append(kept, r)
		}
	}
	return kept
}
