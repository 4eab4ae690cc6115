package provisioning

import (
	"time"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/broker/reconcile"
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
