package report

import (
	"fmt"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/deletion"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/cascades"
	"github.com/exeunt/exeunt/store/graph"
)

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
	if status.Remaining, err = graph.CountDependents(t.ctx, t.r, uid, math.MaxInt64); err != nil {
		return status, err
	}
	cascade := string(uid)
	if gone != nil && cascades.RootUID(gone.Cascade) == uid {
		cascade = gone.Cascade
	}
	below, err := cascades.CountFollowing(t.ctx, t.r, cascade)
	if err != nil {
		return status, err
	}
	status.Remaining += below
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
