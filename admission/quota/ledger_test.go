package quota

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OnlyWoken lets the reviews of ledgers that are made during the test wait for what wakes them, and not look by themselves.
func OnlyWoken(t *testing.T) {
	before := queue.Idle
	queue.Idle = time.Hour
	t.Cleanup(func() { queue.Idle = before })
}

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

// TestInherit: only usage that was counted, of the same quotas with the same limits, is taken over. Otherwise it is counted again.
func TestInherit(t *testing.T) {
	limited := func(uid, pods string) *entry {
		e := &entry{uid: uid}
		e.quota.Spec.Hard = corev1.ResourceList{corev1.ResourcePods: resource.MustParse(pods)}
		return e
	}
	counted := func(loaded bool, entries ...*entry) *space {
		for _, e := range entries {
			e.used = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}
		}
		return &space{entries: entries, loaded: loaded}
	}
	for name, test := range map[string]struct {
		before *space
		want   bool
	}{
		"nothing before": {nil, false},
		"not counted":    {counted(false, limited("a", "2")), false},
		"the same":       {counted(true, limited("a", "2")), true},
		"one has left":   {counted(true, limited("b", "2"), limited("a", "2")), true},
		"another":        {counted(true, limited("b", "2")), false},
		"another limit":  {counted(true, limited("a", "3")), false},
	} {
		s := &space{entries: []*entry{limited("a", "2")}}
		s.inherit(test.before)
		if s.loaded != test.want {
			t.Errorf("%s: loaded is %v", name, s.loaded)
		}
		if used := s.entries[0].used.Pods().Value(); test.want && used != 1 {
			t.Errorf("%s: %d used", name, used)
		}
	}
}
