package custom

import (
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestOwnStatus: the server owns the fields of the status that it changes, and what others own stays theirs.
func TestOwnStatus(t *testing.T) {
	theirs := metav1.ManagedFieldsEntry{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "apiextensions.k8s.io/v1", FieldsType: "FieldsV1",
		FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{"f:group":{}}}`)}}
	live := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "a", ManagedFields: []metav1.ManagedFieldsEntry{theirs}}}
	live.APIVersion, live.Kind = "apiextensions.k8s.io/v1", "CustomResourceDefinition"
	changed := live.DeepCopy()
	changed.Status.StoredVersions = []string{"v1"}
	owned := OwnStatus(live, changed)
	if len(owned.Status.StoredVersions) != 1 {
		t.Errorf("the status is %+v", owned.Status)
	}
	i := slices.IndexFunc(owned.ManagedFields, func(e metav1.ManagedFieldsEntry) bool { return e.Manager == statusManager })
	if len(owned.ManagedFields) != 2 || i < 0 || owned.ManagedFields[i].Subresource != "status" || string(owned.ManagedFields[i].FieldsV1.Raw) != `{"f:status":{"f:storedVersions":{}}}` {
		t.Errorf("the owners are %+v", owned.ManagedFields)
	}
}
