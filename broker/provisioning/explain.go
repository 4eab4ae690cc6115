package provisioning

import (
	"encoding/json"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/broker"
	v1 "github.com/exeunt/exeunt/deletion/v1"
)

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
