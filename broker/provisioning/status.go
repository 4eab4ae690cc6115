package provisioning

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/broker/publish"
	"github.com/exeunt/exeunt/broker/reconcile"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind/event"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// status renders the status of a view. Conditions keep the time of their last
// change from the old status.
func status(view reconcile.View, was map[string]any, generation int64, now time.Time) map[string]any {
	message := view.Why
	if view.Error != "" {
		message = view.Error
	}
	out := map[string]any{"observedGeneration": generation}
	put := func(name, value string) {
		if value != "" {
			out[name] = value
		}
	}
	put("phase", string(view.Phase))
	put("message", message)
	if !view.Since.IsZero() {
		put("phaseSince", view.Since.UTC().Format(time.RFC3339))
	}
	s := view.Resource
	put("bootstrapTokenID", string(s.TokenID))
	if !s.DeletionRequestedAt.IsZero() {
		put("deletionRequestedAt", s.DeletionRequestedAt.UTC().Format(time.RFC3339))
	}
	if r, err := broker.Restore(s); err == nil {
		out["xr"] = map[string]any{"apiVersion": s.XR.APIVersion, "kind": s.XR.Kind, "name": r.XRName()}
	}
	if waiting := waitingFor(view.Observed.Reasons); len(waiting) > 0 && view.Phase != broker.PhaseReady {
		out["waitingFor"] = waiting
	}
	conditions := conditionsOf(view, message)
	for i := range conditions {
		conditions[i].generation = generation
	}
	out["conditions"] = withTimes(conditions, was, now)
	return out
}

func waitingFor(reasons []broker.Reason) (out []any) {
	for _, r := range reasons {
		entry := map[string]any{"holder": string(r.Holder)}
		for name, value := range map[string]string{"name": r.Name, "object": r.Object, "message": r.Message} {
			if value != "" {
				entry[name] = value
			}
		}
		out = append(out, entry)
	}
	return out
}

// lastError is the error that a status shows.
func lastError(status map[string]any) string {
	conditions, _ := status["conditions"].([]any)
	for _, entry := range conditions {
		if c, _ := entry.(map[string]any); c["type"] == "Synced" && c["status"] == "False" {
			message, _ := c["message"].(string)
			return message
		}
	}
	return ""
}

type condition struct {
	kind, status, reason, message string
	generation                    int64
}

// conditionsOf returns Ready, which clients wait for, and Synced, which says
// whether the rounds of the broker succeed.
func conditionsOf(view reconcile.View, message string) []condition {
	ready := condition{kind: "Ready", status: "False", reason: string(view.Phase), message: message}
	if view.Phase == broker.PhaseReady {
		ready.status = "True"
	}
	if view.Phase == "" {
		ready.reason = "NotAccepted"
	}
	synced := condition{kind: "Synced", status: "True", reason: "RoundCompleted"}
	if view.Error != "" {
		synced = condition{kind: "Synced", status: "False", reason: roundFailed, message: view.Error}
	}
	return []condition{ready, synced}
}

func withTimes(conditions []condition, was map[string]any, now time.Time) (out []any) {
	old, _ := was["conditions"].([]any)
	for _, c := range conditions {
		since := now.UTC().Format(time.RFC3339)
		for _, entry := range old {
			fields, _ := entry.(map[string]any)
			if at, ok := fields["lastTransitionTime"].(string); ok && fields["type"] == c.kind && fields["status"] == c.status {
				since = at
			}
		}
		out = append(out, map[string]any{
			"type": c.kind, "status": c.status, "reason": c.reason, "message": c.message,
			"lastTransitionTime": since, "observedGeneration": c.generation,
		})
	}
	return out
}

// ReviewByUID reads the row of the loop's queue for a resource, for reports.
const ReviewByUID = `
SELECT review_count, created_at, review_after, coalesce(last_error, ''), coalesce(claim_until, 0)
FROM provisioned_resource_reviews WHERE id = $1`

// Explain says what the teardown of a stored ProvisionedResource waits for, and
// names the objects involved: its node and its composite resource.
func Explain(body []byte) (v1.Reason, []v1.ObjectReference) {
	var o struct {
		Metadata struct {
			Namespace string `json:"namespace"`
		} `json:"metadata"`
		Status struct {
			Phase      broker.ProvisionedResourcePhase `json:"phase"`
			PhaseSince *metav1.Time                    `json:"phaseSince"`
			Message    string                          `json:"message"`
			XR         v1.ObjectReference              `json:"xr"`
			WaitingFor []struct {
				Holder broker.Holder `json:"holder"`
				Object string        `json:"object"`
			} `json:"waitingFor"`
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(body, &o); err != nil {
		return v1.Reason{Message: "its status cannot be read: " + err.Error()}, nil
	}
	s := o.Status
	reason := v1.Reason{Message: "the teardown has yet to begin"}
	if s.Phase != broker.PhaseDeregistering && s.Phase != broker.PhaseDeprovisioning && s.Phase != broker.PhaseDeleted {
		return reason, nil
	}
	reason.Message, reason.Since = strings.TrimSuffix(string(s.Phase)+": "+s.Message, ": "), s.PhaseSince
	reason.Resolve = "wait for the listed holders; removing this finalizer would hide the teardown, not end it"
	for _, c := range s.Conditions {
		if c.Type == "Synced" && c.Status == metav1.ConditionFalse {
			reason.Resolve = "mend what the error names; the teardown goes on by itself"
		}
	}
	var others []v1.ObjectReference
	for _, w := range s.WaitingFor {
		if name, found := strings.CutPrefix(w.Object, "MeshNode/"); found && w.Holder == broker.HolderPeer {
			others = append(others, v1.ObjectReference{
				APIVersion: "mesh.exeunt.dev/v1alpha1", Kind: "MeshNode", Namespace: o.Metadata.Namespace, Name: name,
			})
		}
	}
	if s.XR.Namespace = o.Metadata.Namespace; s.XR.Name != "" {
		others = append(others, s.XR)
	}
	return reason, others
}

// ExplainBlueprint says what keeps a Blueprint that is being deleted.
func ExplainBlueprint([]byte) (v1.Reason, []v1.ObjectReference) {
	return v1.Reason{
		Message: "resources that were built by it are left",
		Resolve: "delete them, or wait for them: kubectl get provisionedresources -A",
	}, nil
}

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
			UID: object.NewUID(), CreationTimestamp: metav1.NewTime(e.api.now()),
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
