package provisioning

import (
	"encoding/json"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/broker/reconcile"
	v1 "github.com/exeunt/exeunt/deletion/v1"
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
