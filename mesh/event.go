package mesh

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// reporter is who the Events say they are from.
const reporter = "exeunt-mesh"

// writeEvent tells how a node left, in the transaction in which it did. A
// terminating namespace takes no Events; the token keeps the note in any case.
func writeEvent(ctx context.Context, tx *store.Tx, n node, how string, now time.Time) error {
	exists, deleting, err := taken(ctx, tx, "namespaces", "", n.project)
	if err != nil || !exists || deleting {
		return err
	}
	at := metav1.NewTime(now.Truncate(time.Second))
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s.%s", n.name, n.uid[:8]), Namespace: n.project,
			UID: types.UID(uuid.NewString()), CreationTimestamp: at,
		},
		InvolvedObject: corev1.ObjectReference{
			Kind: nodeKind.Kind, APIVersion: nodeKind.GroupVersion().String(),
			Namespace: n.project, Name: n.name, UID: types.UID(n.uid),
		},
		Reason: "Drained", Message: how, Type: corev1.EventTypeNormal,
		Source: corev1.EventSource{Component: reporter}, ReportingController: reporter,
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
	}
	if how != howDrained {
		e.Reason, e.Type = "RemovedWithoutItsWord", corev1.EventTypeWarning
	}
	key := object.Key{Kind: "events", Namespace: e.Namespace, Name: e.Name}
	if told, _, err := taken(ctx, tx, key.Kind, key.Namespace, key.Name); err != nil || told {
		return err
	}
	body, err := object.Encode(e)
	if err != nil {
		return err
	}
	tx.Create(key, &e.ObjectMeta, body)
	return nil
}
