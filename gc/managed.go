package gc

import (
	"bytes"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// unlink removes the references to owners that go, and remembers them for a restore of the
// owners.
func (s *session) unlink(o *item, m *metav1.ObjectMeta, drop []types.UID) error {
	if err := s.tx.RememberDropped(o, m.OwnerReferences, drop); err != nil {
		return err
	}
	unlink(m, drop)
	return s.rewrite(o, m)
}

// unlink removes the references to the owners, and the entries of managedFields for them: a
// manager does not own a field that the collector removed.
func unlink(m *metav1.ObjectMeta, drop []types.UID) {
	m.OwnerReferences = without(m.OwnerReferences, drop)
	removed := fieldpath.NewSet()
	for _, uid := range drop {
		removed.Insert(fieldpath.MakePathOrDie("metadata", "ownerReferences", fieldpath.KeyByFields("uid", string(uid))))
	}
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
