package report

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/deletion"
	"github.com/exeunt/exeunt/deletion/preview"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/graph"
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
		out = append(out, v1.Reason{Type: v1.ReasonCollectorPaused, Message: message, Resolve: "to resume it: exeunt gc resume"})
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
	claimed                int64 // end of the lease; 0 if not claimed
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

// orphaning: the orphan finalizer waits for a controller to see the deletion,
// and then for the collector.
func (t *reporter) orphaning(h *store.Stored, _ metav1.ObjectMeta, _ int) ([]v1.Reason, error) {
	if h.Finalizing&store.FinalizeOrphan == 0 {
		return nil, nil
	}
	n, err := graph.CountDependents(t.ctx, t.r, h.UID, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	reason := v1.Reason{Type: v1.ReasonOrphaning, Message: fmt.Sprintf("%d %s to orphan", n, deletion.Plural(n, "dependent"))}
	deadline := gc.OrphanDeadline(h.Deletion, t.s.opts.OrphanWait)
	if seen, want, behind := gc.Unseen(t.kinds, h.Kind, h.Body); behind && deadline.After(t.now) {
		reason.Message += fmt.Sprintf("; its controller has seen generation %d, and should see %d first, so as not to adopt them again", seen, want)
		reason.Resolve = fmt.Sprintf("nothing: in %v, at %s, the collector stops waiting for the controller (--orphan-observed-generation-timeout)",
			deadline.Sub(t.now).Round(time.Second), deadline.UTC().Format(time.RFC3339))
	}
	return []v1.Reason{reason}, nil
}

// blocking: the foreground finalizer waits for dependents.
func (t *reporter) blocking(h *store.Stored, _ metav1.ObjectMeta, depth int) ([]v1.Reason, error) {
	if h.Finalizing&store.FinalizeForeground == 0 {
		return nil, nil
	}
	owner := gc.AsOwner(t.kinds, h.Key, h.UID)
	n, err := graph.CountBlocking(t.ctx, t.r, owner)
	if err != nil || n == 0 {
		return nil, err
	}
	children, err := t.children(v1.ReasonDependent, depth, n, func() ([]*store.Stored, error) {
		return t.r.BlockingDependents(t.ctx, owner, maxChildren)
	})
	return []v1.Reason{{
		Type:     v1.ReasonBlockingDependents,
		Message:  fmt.Sprintf("blocked by %d %s", n, deletion.Plural(n, "dependent")),
		Resolve:  "see below what keeps them; to stop waiting for them: " + deletion.Command(t.reference(h.Key, ""), "delete", "--cascade=background"),
		Children: children,
	}}, err
}

// kindCount is how many objects of a kind are left.
type kindCount struct {
	kind  string
	count int64
}

// content counts the objects in a namespace, by kind.
func (t *reporter) content(namespace string) ([]kindCount, error) {
	kinds, err := t.r.Kinds(t.ctx, store.AllNamespaces)
	if err != nil {
		return nil, err
	}
	var out []kindCount
	for _, kind := range slices.Concat(gc.Waves(kinds)...) {
		n, err := t.r.Count(t.ctx, kind, namespace, math.MaxInt64)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			out = append(out, kindCount{kind, n})
		}
	}
	return out, nil
}

// namespaceContent: a namespace waits until it is empty, and each wave of its
// content waits for the earlier ones.
func (t *reporter) namespaceContent(h *store.Stored, _ metav1.ObjectMeta, depth int) ([]v1.Reason, error) {
	if h.Kind != object.Namespaces {
		return nil, nil
	}
	content, err := t.content(h.Name)
	if err != nil || len(content) == 0 {
		return nil, err
	}
	reason := v1.Reason{Type: v1.ReasonNamespaceContent, Resolve: "see below what keeps it"}
	total, present := int64(0), []string(nil)
	for _, c := range content {
		total += c.count
		present = append(present, c.kind)
		children, err := t.children(v1.ReasonContent, depth, -1, func() ([]*store.Stored, error) {
			return t.r.Select(t.ctx, store.Selection{Kind: c.kind, Namespace: h.Name, State: store.Deleting, Limit: maxChildren})
		})
		if err != nil {
			return nil, err
		}
		waiting, err := t.notAdmitted(c.kind, h.Name)
		if err != nil {
			return nil, err
		}
		reason.Children = append(reason.Children, v1.Reason{
			Type:     v1.ReasonContent,
			Message:  fmt.Sprintf("%d of kind %s", c.count, t.kindName(c.kind)),
			Children: append(children, waiting...),
		})
	}
	reason.Message = fmt.Sprintf("it is not empty: %d %s left", total, deletion.Plural(total, "object"))
	if waves := gc.Waves(present); len(waves) > 1 {
		reason.Message += fmt.Sprintf("; its %s go first", waves[0][0])
	}
	return []v1.Reason{reason}, nil
}

// definitionContent: a definition waits for the objects of its kind.
func (t *reporter) definitionContent(h *store.Stored, _ metav1.ObjectMeta, depth int) ([]v1.Reason, error) {
	if h.Kind != object.Definitions {
		return nil, nil
	}
	storage, ok := kind.Defined(h.Body)
	if !ok {
		return nil, nil
	}
	n, err := t.r.Count(t.ctx, storage, store.AllNamespaces, math.MaxInt64)
	if err != nil || n == 0 {
		return nil, err
	}
	children, err := t.children(v1.ReasonContent, depth, -1, func() ([]*store.Stored, error) {
		return t.r.Select(t.ctx, store.Selection{Kind: storage, Namespace: store.AllNamespaces, State: store.Deleting, Limit: maxChildren})
	})
	return []v1.Reason{{
		Type: v1.ReasonDefinitionContent, Message: fmt.Sprintf("%d %s of the kind left", n, deletion.Plural(n, "object")),
		Resolve: "see below what keeps them", Children: children,
	}}, err
}

// children reports the objects that a read finds, each with its own reasons,
// at most maxDepth deep and maxObjects in all. total is how many there are; -1 if not
// known.
func (t *reporter) children(sort v1.ReasonType, depth int, total int64, read func() ([]*store.Stored, error)) ([]v1.Reason, error) {
	if depth+1 >= maxDepth || t.objects >= maxObjects {
		t.truncated = true
		return nil, nil
	}
	heads, err := read()
	if err != nil {
		return nil, err
	}
	t.truncated = t.truncated || total > int64(len(heads)) || total < 0 && len(heads) == maxChildren
	var out []v1.Reason
	for _, h := range heads {
		t.objects++
		ref := t.reference(h.Key, h.UID)
		reason := v1.Reason{Type: sort, Object: &ref}
		switch {
		case t.reported[h.UID]:
			reason.Message = deletion.Describe(ref) + " is being deleted; see above"
		case h.Deletion != 0:
			reason.Message = deletion.Describe(ref) + " is being deleted"
			if reason.Children, err = t.reasons(h, depth+1); err != nil {
				return nil, err
			}
		default:
			if reason, err = t.waiting(sort, h); err != nil {
				return nil, err
			}
		}
		out = append(out, reason)
	}
	return out, nil
}

// kindName returns the name of a kind for people.
func (t *reporter) kindName(storage string) string {
	if k, ok := t.kinds.Stored(storage); ok {
		return k.Name
	}
	return storage
}
