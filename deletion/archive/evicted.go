package archive

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/exeunt/exeunt/kind/event"
	"github.com/exeunt/exeunt/store"
	cascade "github.com/exeunt/exeunt/store/cascades"
)

// evicted records that cascades of a namespace leave the archive before their time: one Event for each
// transaction that evicts, about the root of the oldest one.
func (a *Archive) evicted(ctx context.Context, tx *store.Tx, e store.Eviction) error {
	oldest, err := cascade.Read(ctx, tx, e.Cascades[0])
	if err != nil || oldest == nil {
		return err
	}
	what := "its cascade"
	if more := len(e.Cascades) - 1; more > 0 {
		what = fmt.Sprintf("its cascade and %d more", more)
	}
	return event.Recorder{Kinds: a.kinds}.Record(ctx, tx, tx.Now, event.Event{
		About: oldest.Root, Type: corev1.EventTypeWarning, Reason: "ArchiveEvicted", Source: "exeunt", Topic: oldest.ID, Elsewhere: true,
		Message: fmt.Sprintf("%s left the archive before the time and cannot be restored: %d objects with %d bytes. Deletions with roots in this namespace use more than its share of the archive",
			what, e.Objects, e.Bytes),
	})
}
