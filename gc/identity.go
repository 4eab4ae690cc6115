package gc

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/exeunt/exeunt/kind"
)

// Reference is the owner in an ownerReference, without the uid. It has no version:
// all versions of a kind are the same objects.
type Reference struct{ Group, Kind, Name string }

// ReferenceOf converts an ownerReference. An invalid apiVersion gives a group that
// no kind has.
func ReferenceOf(r *metav1.OwnerReference) Reference {
	group, _, found := strings.Cut(r.APIVersion, "/")
	if !found {
		group = "" // "v1": the core group
	}
	return Reference{Group: group, Kind: r.Kind, Name: r.Name}
}

// Named is what the served kinds say about a reference.
type Named struct {
	Served     bool // the kind is served, and its objects are in the database
	Namespaced bool // they live in namespaces
	Same       bool // the owner has the kind and the name in the reference
}

// Identify compares a reference with the object that has its uid.
//
// An object outlives its definition while its namespace is terminating, or after
// a crash. The kind names are unknown then, so Identify compares the group and
// the object's name.
func Identify(kinds *kind.Snapshot, r Reference, o Owner) Named {
	k, served := kinds.OfGroupKind(schema.GroupKind{Group: r.Group, Kind: r.Kind})
	if served && (k.Ephemeral || k.Source != nil) {
		return Named{} // objects of this kind are not in the database
	}
	if served {
		return Named{Served: true, Namespaced: k.Namespaced, Same: o.Exists && k.Storage == o.Kind && r.Name == o.Name}
	}
	if !o.Exists || r.Name != o.Name {
		return Named{}
	}
	_, stored := kinds.Stored(o.Kind)
	return Named{Same: !stored && groupOf(o.Kind) == r.Group}
}

// groupOf returns the group in a storage name: "apps" of "deployments.apps".
func groupOf(storage string) string {
	_, group, _ := strings.Cut(storage, ".")
	return group
}
