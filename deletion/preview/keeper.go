package preview

import (
	"database/sql"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Keeper is a part of this server that sets a finalizer and takes it off. It
// knows what it waits for, where of a stranger's finalizer only the name is
// known.
type Keeper struct {
	// Name is what people call it: "the broker".
	Name string
	// Explain says, from the object as it is stored, what the finalizer waits for:
	// message, since when, and what to do. Objects that it waits for are named
	// too, by namespace whether their kind lives in one or not: those that are
	// here and on their way out are told of below it.
	Explain func(body []byte) (v1.Reason, []v1.ObjectReference)
	// Review is a statement that reads, by the object's uid, the row of the queue
	// that it is worked off by, with the columns of readReview. Empty: none.
	Review string
}

// kept explains a finalizer of a keeper's.
func (t *teller) kept(h *head, k Keeper, finalizer string, depth int) (v1.Reason, error) {
	reason, others := k.Explain(h.body)
	reason.Type = v1.ReasonFinalizer
	reason.Message = "finalizer " + finalizer + " is " + k.Name + "'s: " + reason.Message
	err := t.keptReviews(h, k, &reason)
	if err != nil {
		return reason, err
	}
	for _, ref := range others {
		// It may be elsewhere, or of a kind that nobody serves here: the message
		// has named it.
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

// keptReviews adds what the keeper's review of an object has come to.
func (t *teller) keptReviews(h *head, k Keeper, reason *v1.Reason) error {
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
