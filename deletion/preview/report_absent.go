package preview

import (
	"database/sql"
	"fmt"
	"time"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/object"
)

// removal is the archive row of a removed object.
type removal struct {
	uid       types.UID
	at        int64  // Unix milliseconds
	actor     string // the client or the part of the server that removed the object
	requester string // the client whose delete began the cascade; may be the actor
}

// byWhom says who removed the object and on whose request: " by jo", or
// " by system:garbage-collector, at the request of jo".
func (r *removal) byWhom() string {
	switch {
	case r.actor == "":
		return ""
	case r.requester == r.actor:
		return " by " + r.actor
	}
	return " by " + r.actor + ", at the request of " + r.requester
}

// absent reports on an object that does not exist. An object that was deleted in
// the background is gone before its dependents. While it is in the archive, the
// report lists the dependents that are left, and why.
func (t *reporter) absent(ref v1.ObjectReference, path *field.Path) (v1.DeletionReportStatus, error) {
	status := v1.DeletionReportStatus{Object: ref, State: v1.DoesNotExist}
	gone, found, err := t.removal(ref, path)
	if err != nil {
		return status, err
	}
	if found {
		status.Object.UID = gone.uid
	}
	uid := string(status.Object.UID)
	if uid == "" {
		return status, nil
	}
	var below int64
	if err := t.r.one(countDependents, []any{uid}, &status.Remaining); err != nil {
		return status, err
	}
	if err := t.r.one(countFollowing, []any{uid}, &below); err != nil {
		return status, err
	}
	status.Remaining += below
	if found {
		at := metav1.NewTime(time.UnixMilli(gone.at))
		reason := v1.Reason{Type: v1.ReasonGone, Message: "it was deleted" + gone.byWhom(), Since: &at, Resolve: "to bring it back: exeunt restore " + restoreArgs(status.Object)}
		if status.Remaining > 0 {
			exist := "exist"
			if status.Remaining == 1 {
				exist = "exists"
			}
			reason.Message += fmt.Sprintf(", and %d %s of its cascade still %s", status.Remaining, plural(int(status.Remaining), "object"), exist)
			if reason.Children, err = t.children(v1.ReasonDependent, 0, status.Remaining, following, uid, maxChildren); err != nil {
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
	return target(ref)
}

// removal finds an object in the archive: by its uid, or the last of its name.
func (t *reporter) removal(ref v1.ObjectReference, path *field.Path) (gone removal, found bool, err error) {
	scan := func(rows *sql.Rows) error {
		found = true
		return rows.Scan((*string)(&gone.uid), &gone.at, &gone.actor, &gone.requester)
	}
	if ref.UID != "" {
		return gone, found, t.r.query(scan, removalByUID, string(ref.UID))
	}
	key, err := t.s.key(ref, path)
	if err != nil {
		return gone, false, err
	}
	if key.Kind == object.Namespaces {
		key.Namespace = key.Name // the archive stores a namespace as inside itself
	}
	err = t.r.query(scan, removalByKey, key.Namespace, key.Kind, key.Name)
	return gone, found, err
}
