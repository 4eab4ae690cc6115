package gc

import (
	"bytes"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

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

// unlink removes references to owners that go, by their index, and remembers them for a
// restore of the owners.
func (s *session) unlink(o *item, m *metav1.ObjectMeta, drop []int) error {
	if err := s.tx.RememberDropped(o, m.OwnerReferences, drop); err != nil {
		return err
	}
	unlink(m, drop)
	return s.rewrite(o, m)
}

// unlink removes references, by their index, and the entries of managedFields for owners that
// no reference names any more: a manager does not own a field that the collector removed.
func unlink(m *metav1.ObjectMeta, drop []int) {
	var left []metav1.OwnerReference
	for i, r := range m.OwnerReferences {
		if !slices.Contains(drop, i) {
			left = append(left, r)
		}
	}
	removed := fieldpath.NewSet()
	for _, i := range drop {
		uid := m.OwnerReferences[i].UID
		if !slices.ContainsFunc(left, func(r metav1.OwnerReference) bool { return r.UID == uid }) {
			removed.Insert(fieldpath.MakePathOrDie("metadata", "ownerReferences", fieldpath.KeyByFields("uid", string(uid))))
		}
	}
	m.OwnerReferences = left
	if len(m.OwnerReferences) == 0 {
		removed.Insert(fieldpath.MakePathOrDie("metadata", "ownerReferences"))
	}
	var kept []metav1.ManagedFieldsEntry
	for _, e := range m.ManagedFields {
		if disown(&e, removed) {
			kept = append(kept, e)
		}
	}
	m.ManagedFields = kept
}

var ownerReferencesField = []byte(`"f:ownerReferences"`)

// disown removes fields from an entry. It returns false if the entry has no field left. An
// entry that cannot be read stays as it is.
func disown(e *metav1.ManagedFieldsEntry, removed *fieldpath.Set) bool {
	if e.FieldsV1 == nil || !bytes.Contains(e.FieldsV1.GetRawBytes(), ownerReferencesField) {
		return true
	}
	owned := &fieldpath.Set{}
	if err := owned.FromJSON(e.FieldsV1.GetRawReader()); err != nil {
		return true
	}
	left := owned.RecursiveDifference(removed)
	if left.Empty() {
		return false
	}
	text, err := left.ToJSON()
	if err != nil {
		return true
	}
	e.FieldsV1 = metav1.NewFieldsV1(string(text))
	return true
}
