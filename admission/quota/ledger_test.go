package quota

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/store"
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

// TestRemovedPod: a pod that used nothing any longer makes no room when it is removed at last.
func TestRemovedPod(t *testing.T) {
	e := &entry{uid: "q", names: []corev1.ResourceName{corev1.ResourcePods}, used: corev1.ResourceList{}}
	e.quota.Status.Hard = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("5")}
	s := &space{entries: []*entry{e}, leaving: map[string]leaving{}}
	const alive, ends = `{"metadata":{}}`, `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z","deletionGracePeriodSeconds":30}}`
	late := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	for i, step := range []struct {
		change store.Change
		want   int64
	}{
		{store.Change{Type: store.Created, UID: "a", After: []byte(alive)}, 1},
		{store.Change{Type: store.Created, UID: "b", After: []byte(alive)}, 2},
		{store.Change{Type: store.Updated, UID: "a", Before: []byte(alive), After: []byte(ends)}, 1},
		{store.Change{Type: store.Removed, UID: "a", Before: []byte(ends)}, 1},
		{store.Change{Type: store.Removed, UID: "b", Before: []byte(alive)}, 0},
	} {
		step.change.Key.Kind = pods
		s.change(step.change)
		if used := s.usedAt(e, late); used.Pods().Value() != step.want {
			t.Errorf("after step %d: %v pods are used, want %d", i+1, used.Pods(), step.want)
		}
	}
}
