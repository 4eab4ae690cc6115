package mesh

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/kind/event"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// recordLeft writes an Event about how a node left, in the transaction of the
// removal. If the namespace is terminating, the Event goes into default.
func (m *Mesh) recordLeft(ctx context.Context, tx *store.Tx, n node, how string, now time.Time) error {
	e := event.Event{
		About: object.Object{Key: object.Key{Kind: storage, Namespace: n.project, Name: n.name}, UID: types.UID(n.uid)},
		Type:  corev1.EventTypeNormal, Reason: "Drained", Message: how, Source: "exeunt-mesh", Elsewhere: true,
	}
	if how != howDrained {
		e.Type, e.Reason = corev1.EventTypeWarning, "RemovedWithoutItsWord"
	}
	return event.Recorder{Kinds: m.kinds}.Record(ctx, tx, now, e)
}
