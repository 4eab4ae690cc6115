package mesh

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/event"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// tellLeft tells how a node left, in the transaction in which it did. With a
// namespace that is on its way out the Event would go too: it is then in
// default.
func (m *Mesh) tellLeft(ctx context.Context, tx *store.Tx, n node, how string, now time.Time) error {
	e := event.Event{
		About: object.Object{Key: object.Key{Kind: storage, Namespace: n.project, Name: n.name}, UID: types.UID(n.uid)},
		Type:  corev1.EventTypeNormal, Reason: "Drained", Message: how, Source: "exeunt-mesh", Elsewhere: true,
	}
	if how != howDrained {
		e.Type, e.Reason = corev1.EventTypeWarning, "RemovedWithoutItsWord"
	}
	return event.Recorder{Kinds: m.kinds}.Record(ctx, tx, now, e)
}
