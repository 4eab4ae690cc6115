package gc

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestUnlinkDisowns: the collector removes a reference, and no manager owns it after that.
func TestUnlinkDisowns(t *testing.T) {
	t.Parallel()
	const (
		both  = `{"f:metadata":{"f:ownerReferences":{".":{},"k:{\"uid\":\"a\"}":{},"k:{\"uid\":\"b\"}":{"f:name":{}}}}}`
		other = `{"f:data":{"f:ownerReferences":{}},"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"a\"}":{}}}}`
		wrong = `{"f:ownerReferences"`
		plain = `{"f:data":{}}`
	)
	for name, tt := range map[string]struct {
		drop []int
		want []string
	}{
		"one of two": {[]int{0}, []string{
			`{"f:metadata":{"f:ownerReferences":{".":{},"k:{\"uid\":\"b\"}":{"f:name":{}}}}}`, `{"f:data":{"f:ownerReferences":{}}}`, wrong, plain,
		}},
		"one of two with a uid": {[]int{2}, []string{both, other, wrong, plain}},
		"all":                   {[]int{2, 1, 0}, []string{`{"f:data":{"f:ownerReferences":{}}}`, wrong, plain}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: "a"}, {UID: "b"}, {UID: "b", Kind: "Other"}}}
			for _, fields := range []string{both, other, wrong, plain} {
				m.ManagedFields = append(m.ManagedFields, metav1.ManagedFieldsEntry{FieldsV1: &metav1.FieldsV1{Raw: []byte(fields)}})
			}
			unlink(&m, tt.drop)
			if len(m.OwnerReferences) != 3-len(tt.drop) || len(m.ManagedFields) != len(tt.want) {
				t.Fatalf("left %+v", m)
			}
			for i, want := range tt.want {
				if got := string(m.ManagedFields[i].FieldsV1.Raw); got != want {
					t.Errorf("entry %d: %s, want %s", i, got, want)
				}
			}
		})
	}
}
