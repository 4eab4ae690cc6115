package mesh

import (
	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
	v1 "github.com/exeunt/exeunt/deletion/v1"
)

// ReviewByUID reads the row of the queue for a node, for reports.
const ReviewByUID = `
SELECT review_count, created_at, review_after, coalesce(last_error, ''), coalesce(claim_until, 0)
FROM mesh_node_reviews WHERE uid = $1`

// Explain says what the drain of a stored MeshNode waits for.
func Explain(body []byte) (v1.Reason, []v1.ObjectReference) {
	o, err := decodeNode(body)
	if err != nil {
		return v1.Reason{Message: "it cannot be read: " + err.Error()}, nil
	}
	reason := v1.Reason{Message: "the node has yet to be asked to leave", Since: o.DeletionTimestamp}
	if o.Status.Phase != v1alpha1.PhaseDraining {
		return reason, nil
	}
	for _, c := range o.Status.Conditions {
		if c.Type == "Ready" {
			reason.Message = string(o.Status.Phase) + ": " + c.Message
		}
	}
	reason.Resolve = "the node's own log says what it has yet to finish; at that time it goes in any case"
	return reason, nil
}
