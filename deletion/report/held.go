package report

import (
	"fmt"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/deletion"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/cascades"
	"github.com/exeunt/exeunt/store/graph"
)

// admission returns what webhooks and policies said about the delete of an object that
// the collector would delete. None: the collector does not wait for them.
func (t *reporter) admission(uid types.UID) ([]v1.Reason, error) {
	return t.reviews(gc.AdmissionByUID, uid, t.asked)
}

// asked describes a delete that waits for its admission. The library's errors name the
// webhook or the policy.
func (t *reporter) asked(task task) v1.Reason {
	since := metav1.NewTime(time.UnixMilli(task.created))
	reason := v1.Reason{Type: v1.ReasonAdmission, Since: &since}
	if task.failures == 0 {
		reason.Message = "the collector asks webhooks and policies about its delete"
		return reason
	}
	wait := max(time.UnixMilli(task.due).Sub(t.now).Round(time.Second), 0)
	reason.Message = fmt.Sprintf("its delete is not admitted: %s; asked %d %s, next in %v",
		task.lastError, task.failures, deletion.Plural(task.failures, "time"), wait)
	reason.Resolve = "mend the webhook or policy that the error names, or let it pass deletes of the garbage collector: " +
		"kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations,validatingadmissionpolicies,mutatingadmissionpolicies; the collector asks again by itself"
	return reason
}

// notAdmitted reports objects of a terminating namespace whose delete is not admitted.
func (t *reporter) notAdmitted(kind, namespace string) (out []v1.Reason, err error) {
	active, err := t.r.Select(t.ctx, store.Selection{Kind: kind, Namespace: namespace, State: store.Active, Limit: maxChildren})
	if err != nil {
		return nil, err
	}
	for _, h := range active {
		child, err := t.waiting(v1.ReasonContent, h)
		if err != nil {
			return nil, err
		}
		if len(child.Children) > 0 {
			out = append(out, child)
		}
	}
	return out, nil
}

// waiting describes an object of a cascade that is not DELETING.
func (t *reporter) waiting(sort v1.ReasonType, h *store.Stored) (v1.Reason, error) {
	ref := t.reference(h.Key, h.UID)
	children, err := t.admission(h.UID)
	return v1.Reason{Type: sort, Object: &ref, Message: deletion.Describe(ref) + " is not being deleted yet", Children: children}, err
}

// goesWith returns the reasons of an object that is not DELETING yet, but whose namespace, or
// the definition of its kind, is: it waits for its turn.
func (t *reporter) goesWith(h *store.Stored) (out []v1.Reason, err error) {
	for _, key := range []object.Key{{Kind: object.Namespaces, Name: h.Namespace}, {Kind: object.Definitions, Name: h.Kind}} {
		if key.Name == "" {
			continue
		}
		c, err := t.r.Get(t.ctx, key)
		if err != nil {
			return nil, err
		}
		if c == nil || c.Deletion == 0 {
			continue
		}
		ref := t.reference(key, "")
		reason := v1.Reason{Type: v1.ReasonGoesWith, Message: "it goes with " + deletion.Describe(ref), Resolve: "see what it waits for: exeunt why " + deletion.Target(ref)}
		switch {
		case c.Held():
			reason.Message += ", whose deletion waits to be confirmed"
		case key.Kind == object.Namespaces:
			err = t.turn(h, c, &reason)
		default:
			reason.Message += ", which is being emptied"
		}
		if err != nil {
			return nil, err
		}
		out = append(out, reason)
	}
	return out, nil
}

// turn says what leaves a terminating namespace before an object: an earlier wave. If it is the
// object's turn, the collector has to act.
func (t *reporter) turn(h, namespace *store.Stored, reason *v1.Reason) error {
	present, err := t.r.Kinds(t.ctx, h.Namespace)
	if err != nil {
		return err
	}
	wave := gc.Waves(present)[0] // the object's own kind is present
	if slices.Contains(wave, h.Kind) {
		reason.Message += ", which is being emptied"
		reason.Children, err = t.collector(namespace.UID)
		return err
	}
	n, err := t.r.Count(t.ctx, wave[0], h.Namespace, math.MaxInt64)
	if err != nil {
		return err
	}
	reason.Message += fmt.Sprintf(", after %d of kind %s", n, t.kindName(wave[0]))
	reason.Children, err = t.children(v1.ReasonContent, 0, -1, func() ([]*store.Stored, error) {
		return t.r.Select(t.ctx, store.Selection{Kind: wave[0], Namespace: h.Namespace, State: store.Deleting, Limit: maxChildren})
	})
	return err
}

// mostReported bounds how many objects a report counts for a held deletion, because
// people repeat reports. A preview counts more.
const mostReported = 100_000

// guarded returns the reason of an object that the guard holds. Such an object has
// no other reason.
func (t *reporter) guarded(h *store.Stored) (v1.Reason, error) {
	ref := t.reference(h.Key, "")
	c, err := t.s.previews.Guarded(t.ctx, t.r, h, mostReported)
	if err != nil {
		return v1.Reason{}, err
	}
	least := ""
	if c.AtLeast {
		least = "at least "
	}
	limit, where := c.Allowed(), ""
	if c.Excess.Over {
		limit, where = c.Excess.Limit, c.Excess.Where()
	}
	message := fmt.Sprintf("its deletion waits to be confirmed: %s%d objects would go, and %d may%s", least, c.Going, limit, where)
	another, err := t.s.store.AnotherConfirms(t.ctx, h.Key)
	if err != nil {
		return v1.Reason{}, err
	}
	if another != "" {
		message += "; another user than the one who asked for it must confirm, because of namespace " + another
	}
	since := metav1.Unix(h.Deletion, 0)
	confirm := deletion.Command(ref, "annotate", "--overwrite", fmt.Sprintf("%s=%d", lifecycle.ConfirmCascade, c.Going))
	if c.AtLeast {
		confirm = fmt.Sprintf("set the annotation %s to the number that a preview counts", lifecycle.ConfirmCascade)
	}
	return v1.Reason{
		Type: v1.ReasonGuard, Message: message, Since: &since,
		Resolve: "to see what would go: exeunt preview " + deletion.Target(ref) + "; to confirm: " + confirm + "; to call it off: exeunt restore " + deletion.Target(ref),
	}, nil
}

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
	// with the columns of gc.ReviewByUID. Empty if the keeper has no queue.
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

// removedBy says who removed the object and on whose request: " by jo (request 5f1f…)", or
// " by system:garbage-collector, at the request of jo (request 5f1f…)".
func removedBy(a *store.Archived) string {
	who := " by " + a.Actor
	switch {
	case a.Actor == "":
		return ""
	case a.Requester != a.Actor:
		who += ", at the request of " + a.Requester
	}
	if a.RequestID != "" {
		who += " (request " + a.RequestID + ")"
	}
	return who
}

// absent reports on an object that does not exist. An object that was deleted in
// the background is gone before its dependents. While it is in the archive, the
// report lists the dependents that are left, and why.
func (t *reporter) absent(client kind.Client, ref v1.ObjectReference, path *field.Path) (v1.DeletionReportStatus, error) {
	status := v1.DeletionReportStatus{Object: ref, State: v1.DoesNotExist}
	gone, err := t.removal(ref, path)
	if err != nil || gone != nil && client.May("get", gone.Key()) != nil {
		return status, err
	}
	if gone != nil {
		status.Object.UID = gone.UID
	}
	uid := status.Object.UID
	if uid == "" {
		return status, nil
	}
	cascade := string(uid)
	if gone != nil && cascades.RootUID(gone.Cascade) == uid {
		cascade = gone.Cascade
		status.Remaining, err = gc.Remaining(t.ctx, &t.r.Reader, t.kinds, cascade)
	} else {
		status.Remaining, err = graph.CountDependents(t.ctx, t.r, uid, math.MaxInt64)
	}
	if err != nil {
		return status, err
	}
	if gone != nil {
		at := metav1.NewTime(time.UnixMilli(gone.RemovedAt))
		reason := v1.Reason{Type: v1.ReasonGone, Message: "it was deleted" + removedBy(gone), Since: &at, Resolve: "to bring it back: exeunt restore " + restoreArgs(status.Object)}
		if status.Remaining > 0 {
			exist := "exist"
			if status.Remaining == 1 {
				exist = "exists"
			}
			reason.Message += fmt.Sprintf(", and %d %s of its cascade still %s", status.Remaining, deletion.Plural(status.Remaining, "object"), exist)
			if reason.Children, err = t.children(v1.ReasonDependent, 0, status.Remaining, func() ([]*store.Stored, error) {
				return t.r.Following(t.ctx, uid, cascade, maxChildren)
			}); err != nil {
				return status, err
			}
		}
		status.Reasons = append(status.Reasons, reason)
	}
	if status.Remaining == 0 {
		return status, nil
	}
	collector, err := t.collector(uid)
	status.Reasons = append(status.Reasons, collector...)
	return status, err
}

// restoreArgs returns the arguments of "exeunt restore" for an object.
func restoreArgs(ref v1.ObjectReference) string {
	if ref.Name == "" {
		return "--uid " + string(ref.UID)
	}
	return deletion.Target(ref)
}

// removal finds an object in the archive: by its uid, or the last of its name.
func (t *reporter) removal(ref v1.ObjectReference, path *field.Path) (*store.Archived, error) {
	if ref.UID != "" {
		return t.r.LastArchived(t.ctx, store.ArchiveFilter{UID: ref.UID})
	}
	key, err := deletion.Key(t.kinds, ref, path)
	if err != nil {
		return nil, err
	}
	return t.r.LastArchived(t.ctx, store.ArchiveFilter{Key: key})
}
