package report

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
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
	// with the columns of gc.ReviewByUID. Empty: the keeper has no queue.
	Review string
}

// kept explains the finalizer of a keeper.
func (t *reporter) kept(h *store.Stored, k Keeper, finalizer string, depth int) (v1.Reason, error) {
	reason, others := k.Explain(h.Body)
	reason.Type = v1.ReasonFinalizer
	reason.Message = "finalizer " + finalizer + " is " + k.Name + "'s: " + reason.Message
	if k.Review != "" {
		reviews, err := t.reviews(k.Review, h.UID, t.review(k.Name))
		if err != nil {
			return reason, err
		}
		reason.Children = append(reason.Children, reviews...)
	}
	for _, ref := range others {
		// It may be in another cluster, or of an unserved kind: the message names it.
		k := t.kinds.Named(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind))
		if k == nil {
			continue
		}
		if !k.Namespaced {
			ref.Namespace = ""
		}
		children, err := t.children(v1.ReasonWaitsFor, depth, -1, func() ([]*store.Stored, error) {
			o, err := t.r.Get(t.ctx, object.Key{Kind: k.Storage, Namespace: ref.Namespace, Name: ref.Name})
			if err != nil || o == nil || !o.Deleting {
				return nil, err
			}
			return []*store.Stored{o}, nil
		})
		if err != nil {
			return reason, err
		}
		reason.Children = append(reason.Children, children...)
	}
	return reason, nil
}
