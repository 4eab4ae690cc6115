package provisioning

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/broker/publish"
	"github.com/exeunt/exeunt/broker/reconcile"
	"github.com/exeunt/exeunt/kind/event"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// Events publishes the broker's events as Kubernetes Events about the
// ProvisionedResource: publish.Sink.
type Events struct{ api *API }

// Events is the sink that makes Kubernetes Events.
func (a *API) Events() Events { return Events{a} }

// Name is "kubernetes".
func (Events) Name() string { return "kubernetes" }

// Deliver creates the Event. Its name derives from the token, so a second
// delivery stores nothing. A terminating namespace takes no new objects: then
// no client can read the Event, and it counts as delivered.
func (e Events) Deliver(ctx context.Context, event publish.Event) error {
	var name string // the row stays until its events are delivered
	if _, err := e.api.db.Row(ctx, nameOfID, []any{string(event.ProvisionedResourceID)}, &name); err != nil {
		return fmt.Errorf("find the name of %s: %w", event.ProvisionedResourceID, err)
	}
	o := e.event(event, name)
	body, err := object.Encode(o)
	if err != nil {
		return err
	}
	_, err = e.api.store.Create(ctx, store.CreateRequest{
		Key:  object.Key{Kind: object.Events, Namespace: o.Namespace, Name: o.Name},
		Meta: o.ObjectMeta, Body: body, InNamespace: true,
	})
	switch {
	case object.Is(err, object.AlreadyExists), object.Is(err, object.BeingDeleted):
		return nil
	case object.Is(err, object.Terminating), object.Is(err, object.NoNamespace):
		e.api.log.Info("event dropped: its namespace is terminating or gone", "token", string(event.Token), "namespace", o.Namespace)
		return nil
	}
	return err
}

const nameOfID = `SELECT name FROM provisioned_resources WHERE id = $1`

func (e Events) event(event publish.Event, name string) *corev1.Event {
	at := metav1.NewTime(event.OccurredAt)
	sum := sha256.Sum256([]byte(event.Token))
	reason := strings.TrimPrefix(string(event.Type), "broker.ProvisionedResource")
	var failed struct {
		Reason string `json:"reason"`
	}
	_ = json.Unmarshal(event.Payload, &failed) // only a failure has one
	kind, text := corev1.EventTypeNormal, messages[event.Type]
	if event.Type == broker.EventFailed {
		kind, text = corev1.EventTypeWarning, failed.Reason
	}
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Name: event.XRName + "." + hex.EncodeToString(sum[:8]), Namespace: string(event.ProjectID),
			UID: types.UID(uuid.NewString()), CreationTimestamp: metav1.NewTime(e.api.now()),
			Annotations: map[string]string{tokenAnnotation: string(event.Token)},
		},
		InvolvedObject: corev1.ObjectReference{
			Kind: "ProvisionedResource", APIVersion: group + "/v1alpha1", Namespace: string(event.ProjectID),
			Name: name, UID: types.UID(event.ProvisionedResourceID),
		},
		Reason: reason, Message: text, Type: kind, Count: 1, FirstTimestamp: at, LastTimestamp: at,
		Source: corev1.EventSource{Component: reporter}, ReportingController: reporter,
	}
}

// recordFailure creates the Event of a round that ended early: one Event for
// each resource, whose message is the last error. It is written after the
// status, which is authoritative: a crash in between loses the Event.
func (a *API) recordFailure(ctx context.Context, about object.Object, view reconcile.View) error {
	message := view.Error
	if view.Phase != "" {
		message = string(view.Phase) + ": " + message
	}
	err := a.store.Transact(ctx, func(tx *store.Tx) error {
		return event.Recorder{Kinds: a.kinds}.Record(ctx, tx, a.now(), event.Event{
			About: about, Type: corev1.EventTypeWarning, Reason: roundFailed, Message: message, Source: reporter,
		})
	})
	if err != nil {
		return fmt.Errorf("record the failed round of %s as an Event: %w", about.Key, err)
	}
	return nil
}

// roundFailed is the reason of a false condition Synced and of the Event.
const roundFailed = "RoundFailed"

const (
	reporter        = "exeunt-broker"
	tokenAnnotation = "provisioning.exeunt.dev/event-token"
)

var messages = map[broker.EventType]string{
	broker.EventRequested: "The declaration was accepted.",
	broker.EventReady:     "The composite resource is ready and the node has enrolled.",
	broker.EventDeleting:  "The deletion was accepted: the node leaves first, then its substrate.",
	broker.EventDeleted:   "Node and substrate are gone.",
}
