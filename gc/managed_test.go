package gc

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
		drop []types.UID
		want []string
	}{
		"one of two": {[]types.UID{"a"}, []string{
			`{"f:metadata":{"f:ownerReferences":{".":{},"k:{\"uid\":\"b\"}":{"f:name":{}}}}}`, `{"f:data":{"f:ownerReferences":{}}}`, wrong, plain,
		}},
		"all": {[]types.UID{"b", "a"}, []string{`{"f:data":{"f:ownerReferences":{}}}`, wrong, plain}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: "a"}, {UID: "b"}}}
			for _, fields := range []string{both, other, wrong, plain} {
				m.ManagedFields = append(m.ManagedFields, metav1.ManagedFieldsEntry{FieldsV1: &metav1.FieldsV1{Raw: []byte(fields)}})
			}
			unlink(&m, tt.drop)
			if len(m.OwnerReferences) != 2-len(tt.drop) || len(m.ManagedFields) != len(tt.want) {
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
