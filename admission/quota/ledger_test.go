package quota

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestCopy: what a transaction counts does not touch the ledger.
func TestCopy(t *testing.T) {
	seconds := int64(30)
	gone := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: time.Unix(1000, 0)}, DeletionGracePeriodSeconds: &seconds}}
	s := &space{entries: []*entry{{uid: "a"}}, leaving: map[string]leaving{}}
	own := s.copy()
	own.leaves("x", gone)
	own.entries[0].used = corev1.ResourceList{"pods": {}}
	if len(own.leaving) != 1 || len(s.leaving) != 0 || s.entries[0].used != nil {
		t.Errorf("the ledger has %v and %v", s.leaving, s.entries[0].used)
	}
}
