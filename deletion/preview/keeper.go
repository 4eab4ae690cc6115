package preview

import (
	"database/sql"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Keeper is a part of this server that sets and removes a finalizer. It can say
// what the finalizer waits for; of other finalizers only the name is known.
type Keeper struct {
	// Name is its name in messages: "the broker".
	Name string
	// Explain returns, from the stored object, what the finalizer waits for:
	// message, since when, and what to do. It also returns the objects that the
	// finalizer waits for, always with a namespace, even if their kind is
	// cluster-scoped; the report lists those that are DELETING as children.
	Explain func(body []byte) (v1.Reason, []v1.ObjectReference)
	// Review is a statement that reads the keeper's queue row by the object's uid,
	// with the columns of readReview. Empty: the keeper has no queue.
	Review string
}

// kept explains the finalizer of a keeper.
func (t *reporter) kept(h *head, k Keeper, finalizer string, depth int) (v1.Reason, error) {
	reason, others := k.Explain(h.body)
	reason.Type = v1.ReasonFinalizer
	reason.Message = "finalizer " + finalizer + " is " + k.Name + "'s: " + reason.Message
	err := t.keptReviews(h, k, &reason)
	if err != nil {
		return reason, err
	}
	for _, ref := range others {
		// It may be in another cluster, or of an unserved kind: the message names it.
		k := t.s.kinds.Snapshot().Named(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind))
		if k == nil {
			continue
		}
		if !k.Namespaced {
			ref.Namespace = ""
		}
		children, err := t.children(v1.ReasonWaitsFor, depth, -1, leavingByKey, k.Storage, ref.Namespace, ref.Name)
		if err != nil {
			return reason, err
		}
		reason.Children = append(reason.Children, children...)
	}
	return reason, nil
}

// keptReviews adds the state of the keeper's review of an object.
func (t *reporter) keptReviews(h *head, k Keeper, reason *v1.Reason) error {
	if k.Review == "" {
		return nil
	}
	return t.r.query(func(rows *sql.Rows) error {
		var task task
		err := rows.Scan(&task.failures, &task.created, &task.due, &task.lastError, &task.claimed)
		reason.Children = append(reason.Children, t.review(k.Name, task))
		return err
	}, k.Review, string(h.uid))
}
