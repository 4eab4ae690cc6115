package report

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/deletion"
	"github.com/exeunt/exeunt/deletion/preview"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// finalizers returns the finalizers that other controllers, or a keeper, must
// remove.
func (t *reporter) finalizers(h *store.Stored, m metav1.ObjectMeta, depth int) ([]v1.Reason, error) {
	var out []v1.Reason
	ref := t.reference(h.Key, "")
	hold := preview.HoldersOf(h.Kind, m, h.Body)
	for _, f := range hold.Finalizers {
		if keeper, ok := t.s.opts.Keepers[f]; ok {
			reason, err := t.kept(h, keeper, f, depth)
			if err != nil {
				return nil, err
			}
			out = append(out, reason)
			continue
		}
		manager, since := managerOf(m.ManagedFields, f)
		reason := v1.Reason{
			Type: v1.ReasonFinalizer, Message: "finalizer " + f + " has not been removed", Manager: manager, Since: since,
		}
		who, gone := "its controller", "there is none any more"
		if manager != "" && manager != "unknown" { // a client without a name
			reason.Message += ", which " + manager + " set"
			who, gone = manager, "that is gone for good"
		}
		reason.Resolve = "see what keeps " + who + " from removing it; if " + gone + ": " + deletion.ForceCommand(ref, f)
		out = append(out, reason)
	}
	for _, f := range hold.Spec {
		out = append(out, v1.Reason{
			Type: v1.ReasonSpecFinalizer, Message: "spec.finalizers has " + f,
			Resolve: fmt.Sprintf("the controller that set it removes it with a PUT to /api/v1/namespaces/%s/finalize; if that is gone for good: %s",
				h.Name, deletion.ForceCommand(ref, f)),
		})
	}
	return out, nil
}

// managerOf returns the field manager that set a finalizer; if several did, the
// newest.
func managerOf(entries []metav1.ManagedFieldsEntry, finalizer string) (string, *metav1.Time) {
	key, err := json.Marshal(finalizer)
	if err != nil {
		return "", nil
	}
	var manager string
	var since *metav1.Time
	for i := range entries {
		e := &entries[i]
		var fields struct {
			Metadata struct {
				Finalizers map[string]json.RawMessage `json:"f:finalizers"`
			} `json:"f:metadata"`
		}
		if e.FieldsV1 == nil || json.Unmarshal(e.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		_, owns := fields.Metadata.Finalizers["v:"+string(key)]
		if owns && (manager == "" || since.Before(e.Time)) {
			manager, since = e.Manager, e.Time
		}
	}
	return manager, since
}

// grace returns the reason of a grace period that has not been ended.
func (t *reporter) grace(h *store.Stored, m metav1.ObjectMeta) []v1.Reason {
	if m.DeletionGracePeriodSeconds == nil || *m.DeletionGracePeriodSeconds == 0 || m.DeletionTimestamp == nil {
		return nil
	}
	period := time.Duration(*m.DeletionGracePeriodSeconds) * time.Second
	since := metav1.NewTime(m.DeletionTimestamp.Add(-period))
	message := fmt.Sprintf("its grace period of %v has %v left", period, m.DeletionTimestamp.Sub(t.now).Round(time.Second))
	if over := t.now.Sub(m.DeletionTimestamp.Time); over >= 0 {
		message = fmt.Sprintf("its grace period of %v ended %v ago, and no client has confirmed that it has stopped", period, over.Round(time.Second))
	}
	return []v1.Reason{{
		Type: v1.ReasonGracePeriod, Message: message, Since: &since,
		Resolve: "its node confirms the stop with a delete at grace period 0; if the node does not: " +
			deletion.Command(t.reference(h.Key, ""), "delete", "--grace-period=0", "--force"),
	}}
}

// collector returns the problems of the collector, and the state of its review of
// a uid.
func (t *reporter) collector(uid types.UID) ([]v1.Reason, error) {
	var out []v1.Reason
	paused, why, err := gc.ReadPaused(t.ctx, &t.r.Reader)
	if err != nil {
		return nil, err
	}
	if paused {
		message := "the collector is paused"
		if why != "" {
			message += ": " + why
		}
		out = append(out, v1.Reason{Type: v1.ReasonCollectorPaused, Message: message, Resolve: "exeunt gc resume"})
	}
	if t.s.opts.CollectorOff {
		out = append(out, v1.Reason{
			Type: v1.ReasonCollectorOff, Message: "this server runs without a collector",
			Resolve: "start it without --enable-garbage-collector=false, or another one on the same database",
		})
	}
	reviews, err := t.reviews(gc.ReviewByUID, uid, t.review("the collector"))
	return append(out, reviews...), err
}

// reviews describes the row of a uid in a queue, if there is one. It reads in the
// snapshot, on the same connection: reports that hold one connection and wait for
// a second could deadlock.
func (t *reporter) reviews(statement string, uid types.UID, describe func(task) v1.Reason) (out []v1.Reason, err error) {
	if err := sqldb.Each(t.ctx, t.r, func(row sqldb.Row) error {
		var task task
		err := row.Scan(&task.failures, &task.created, &task.due, &task.lastError, &task.claimed)
		out = append(out, describe(task))
		return err
	}, statement, string(uid)); err != nil {
		return nil, fmt.Errorf("read reviews: %w", err)
	}
	return out, nil
}

// task is a row of a queue of reviews. Times are Unix milliseconds.
type task struct {
	failures, created, due int64
	lastError              string
	claimed                int64 // end of the lease; 0: not claimed
}

// review returns a function that describes a task of a queue. who is the part of the
// server that reviews it. Only a failing review has a Since.
func (t *reporter) review(who string) func(task) v1.Reason {
	return func(task task) v1.Reason { return t.reviewed(who, task) }
}

func (t *reporter) reviewed(who string, task task) v1.Reason {
	reason := v1.Reason{Type: v1.ReasonReview}
	wait := time.UnixMilli(task.due).Sub(t.now).Round(time.Second)
	switch {
	case task.failures > 0:
		since := metav1.NewTime(time.UnixMilli(task.created))
		reason.Since = &since
		reason.Message = fmt.Sprintf("its review failed %d times, last with: %s; next attempt in %v", task.failures, task.lastError, max(wait, 0))
		reason.Resolve = "mend what the error names; the review is repeated by itself"
	case time.UnixMilli(task.claimed).After(t.now):
		reason.Message = who + " is at work on it"
	case wait > 0:
		reason.Message = fmt.Sprintf("%s looks at it again in %v", who, wait)
	default:
		reason.Message = who + " reviews it next"
	}
	return reason
}

// owned describes an owner of an object that is not DELETING. missing says that the
// owner does not keep it.
func owned(r *metav1.OwnerReference, s gc.Standing, namespace string) (reason v1.Reason, missing bool) {
	name := r.Kind + " " + r.Name
	reason = v1.Reason{Type: v1.ReasonOwner, Object: &v1.ObjectReference{
		APIVersion: r.APIVersion, Kind: r.Kind, Namespace: namespace, Name: r.Name, UID: r.UID,
	}}
	switch s {
	case gc.Solid:
		reason.Message = "owned by " + name + ", which exists and keeps it"
	case gc.Waiting:
		reason.Message, missing = "owned by "+name+", which is being deleted after its dependents", true
	case gc.Unknown:
		reason.Message = fmt.Sprintf("owned by %s, of a kind that this server does not serve (%s): it is kept until the kind is served and the owner can be looked up", name, r.APIVersion)
		reason.Resolve = "install the definition of the kind; or remove the reference"
	case gc.Unresolvable:
		reason.Message = "owned by " + name + ", which lives in a namespace while this does not: it is never collected"
		reason.Resolve = "remove the reference, or delete it by hand"
	default:
		reason.Message, missing = "owned by "+name+", which does not exist or is in another namespace", true
	}
	return reason, missing
}
