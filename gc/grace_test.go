package gc

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

func passes(value string) option {
	return func(_ *world, m *metav1.ObjectMeta) {
		m.Annotations = map[string]string{lifecycle.PropagateGrace: value}
	}
}

const boundPod = `,"spec":{"nodeName":"x","terminationGracePeriodSeconds":30}`

// wantGrace checks the grace period of a DELETING object.
func (w *world) wantGrace(name string, want int64) {
	w.Helper()
	o, err := w.store.Get(context.Background(), keyOf(name))
	if err != nil {
		w.Fatal(err)
	}
	m, err := object.ParseMeta(o.Body)
	if err != nil {
		w.Fatal(err)
	}
	if m.DeletionGracePeriodSeconds == nil || *m.DeletionGracePeriodSeconds != want {
		w.Errorf("%s has grace %v, want %d", name, m.DeletionGracePeriodSeconds, want)
	}
}

// TestPropagateGrace is open question 2 of the garbage collection proposal.
func TestPropagateGrace(t *testing.T) {
	five := int64(5)
	for _, tt := range []struct {
		name   string
		value  string
		policy metav1.DeletionPropagation
		asked  *int64
		want   int64
	}{
		{"a number", "7", background, nil, 7},
		{"a number before the request's", "7", background, &five, 7},
		{"the request's", "true", background, &five, 5},
		{"true, and the request names none", "true", background, nil, 30},
		{"nonsense", "soon", background, &five, 30},
		{"negative", "-1", background, &five, 30},
		{"foreground", "7", foreground, nil, 7},
		{"foreground, the request's", "true", foreground, &five, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			each(t, func(w *world) {
				w.add("a", passes(tt.value))
				w.add("b", owned("a^"))
				w.addBody("pods:c", boundPod, owned("b^")) // two levels down
				w.addBody("pods:d", boundPod, owned("a^"))
				w.deleteWith("a", metav1.DeleteOptions{PropagationPolicy: &tt.policy, GracePeriodSeconds: tt.asked})
				w.drain()
				w.wantGrace("pods:c", tt.want)
				w.wantGrace("pods:d", tt.want)
				if tt.policy == background {
					w.want("pods:c!<b pods:d!<a")
				}
				for _, pod := range []string{"pods:c", "pods:d"} {
					w.deleteWith(pod, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
				}
				w.drain()
				w.want("")
			})
		})
	}
}

// TestPropagateGraceOrphan: nothing is deleted, so nothing is passed on.
func TestPropagateGraceOrphan(t *testing.T) {
	each(t, func(w *world) {
		w.add("a", passes("7"))
		w.addBody("pods:b", boundPod, owned("a"))
		w.delete("a", orphan)
		w.drain()
		w.want("pods:b")
	})
}

// TestPropagateGraceAnotherOwner keeps the dependent.
func TestPropagateGraceAnotherOwner(t *testing.T) {
	each(t, func(w *world) {
		w.add("a", passes("7"))
		w.add("b")
		w.addBody("pods:c", boundPod, owned("a", "b"))
		w.delete("a", background)
		w.want("a!(" + lifecycle.PropagateGrace + ") b pods:c<a,b")
		w.drain()
		w.want("b pods:c<b")
	})
}
