package v1

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
)

// ArchivedObject is an object that was removed and can still be restored. Its
// name is the uid of the original, and it is in the original's namespace; a
// Namespace is in itself. Deleting it purges the original from the archive.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type ArchivedObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what was removed, when, by whom, and in which cascade.
	Spec ArchivedObjectSpec `json:"spec"`
	// Object is the original as it was last stored. Absent: it was not kept.
	Object *runtime.RawExtension `json:"object,omitempty"`
}

// ArchivedObjectSpec says what was removed, when, by whom, and in which cascade.
type ArchivedObjectSpec struct {
	// APIVersion is the original's.
	APIVersion string `json:"apiVersion"`
	// Kind is the original's.
	Kind string `json:"kind"`
	// Namespace is the original's.
	Namespace string `json:"namespace,omitempty"`
	// Name is the original's.
	Name string `json:"name"`
	// UID is the original's.
	UID types.UID `json:"uid"`

	// RemovedAt is when it was removed.
	RemovedAt metav1.Time `json:"removedAt"`
	// ExpiresAt is when its cascade leaves the archive, whole, if it removes no more.
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
	// RequestedBy is the client whose delete began the cascade.
	RequestedBy string `json:"requestedBy"`
	// Actor is the user that deleted this object: the same client, or a controller that
	// continued the cascade, such as system:garbage-collector.
	Actor string `json:"actor"`
	// RequestID is the Audit-Id of the delete that began the cascade, under which the
	// audit log has it. Absent: no request of the API began the cascade.
	RequestID string `json:"requestID,omitempty"`
	// Cascade is the id that all objects removed by one delete share: the uid of
	// the object that the client deleted, or a new id for a DeleteCollection.
	Cascade string `json:"cascade"`
	// Size is the length of the stored object in bytes.
	Size int64 `json:"size"`
}

// Left is the time until something leaves the archive, for people; empty if that is not known. What is
// over leaves with the next run of expiry.
func Left(until *metav1.Time) string {
	if until == nil {
		return ""
	}
	return duration.HumanDuration(max(0, time.Until(until.Time)))
}

// ArchivedObjectList is a list of archived objects, the newest removal first.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type ArchivedObjectList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ArchivedObject `json:"items"`
}

// Restore brings removed objects back, with the rights of the client that created it. The
// server works on it until it has ended; to stop it, delete it. A dry run is answered and not
// stored.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Restore struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what to restore.
	Spec RestoreSpec `json:"spec"`
	// Status is the result for each object, owners first.
	Status RestoreStatus `json:"status,omitempty"`
}

// RestoreSpec says what to restore: exactly one of UID, Cascade and Object.
// WithCascade is allowed with UID and Object, and To with Object.
type RestoreSpec struct {
	// UID is the uid that the object had.
	UID types.UID `json:"uid,omitempty"`
	// Cascade is the id of a cascade: restore all objects of it.
	Cascade string `json:"cascade,omitempty"`
	// Object is the newest removed object of that name. If one cascade removed
	// several, it is the first, which existed when the cascade began.
	Object *ObjectName `json:"object,omitempty"`
	// WithCascade also restores all objects of the same cascade: the content of a
	// namespace, the objects of a definition, dependents.
	WithCascade bool `json:"withCascade,omitempty"`
	// Objects are objects of a backup. The server puts them into the archive as a part of Cascade, an id that the client
	// makes, also in a dry run, and restores the cascade if they are Last. It needs the right to create archivedobjects in
	// their namespaces.
	Objects []BackupObject `json:"objects,omitempty"`
	// Last says that no more Objects of the cascade follow.
	Last bool `json:"last,omitempty"`

	// To reverts Object instead: to what it was at a version, or at the end of the second of a time in RFC 3339. A
	// Namespace is reverted with all that is in it.
	To string `json:"to,omitempty"`
	// WithStatus also reverts the status, which is left to the controllers otherwise.
	WithStatus bool `json:"withStatus,omitempty"`

	// DryRun returns the results and changes nothing.
	DryRun bool `json:"dryRun,omitempty"`
	// KeepTokens restores the tokens of Users too, which their deletion revoked: they
	// are valid again.
	KeepTokens bool `json:"keepTokens,omitempty"`
}

// BackupObject is an object as a backup has it.
type BackupObject struct {
	// Kind is the storage name of its kind: deployments.apps.
	Kind string `json:"kind"`
	// Object is the object in its stored form, with the uid that it had.
	Object runtime.RawExtension `json:"object"`
}

// ObjectName names an object. Kind is any form that kubectl accepts: "Deployment",
// "deploy", "deployments.apps".
type ObjectName struct {
	// APIVersion may be left out.
	APIVersion string `json:"apiVersion,omitempty"`
	// Kind is the kind, its plural or a short name.
	Kind string `json:"kind"`
	// Namespace is empty for kinds that are not namespaced.
	Namespace string `json:"namespace,omitempty"`
	// Name is the name.
	Name string `json:"name"`
}

// RestoreStatus is the result for each object, owners first.
type RestoreStatus struct {
	// RequestedBy is the client that asked for the restore, with whose rights it runs. Absent in a dry run.
	RequestedBy string `json:"requestedBy,omitempty"`
	// Phase is how far the server is. Absent in a dry run.
	Phase Phase `json:"phase,omitempty"`
	// Complete: all that was asked for exists again.
	Complete bool `json:"complete"`
	// Message says what the restore waits for, or why it cannot go on.
	Message string `json:"message,omitempty"`

	// Before is the version from before a revert: a revert to it is its undo.
	Before string `json:"before,omitempty"`

	// Created is how many were created.
	Created int `json:"created"`
	// Changed is how many a revert changed.
	Changed int `json:"changed,omitempty"`
	// Deleted is how many a revert deleted.
	Deleted int `json:"deleted,omitempty"`
	// Skipped is how many were skipped.
	Skipped int `json:"skipped"`
	// Failed is how many failed.
	Failed int `json:"failed"`
	// Waiting is how many are still being deleted, or wait for such objects. They are
	// restored as soon as those are gone.
	Waiting int `json:"waiting,omitempty"`
	// CalledOff is how many were held by the guard. They were never removed and are ACTIVE
	// again.
	CalledOff int `json:"calledOff,omitempty"`
	// Conflicts is how many were skipped because another object has the name.
	Conflicts int `json:"conflicts,omitempty"`

	// Cascade is the object's cascade. Set if one object is restored alone.
	Cascade string `json:"cascade,omitempty"`
	// LeftBehind is how many other objects of that cascade are still only in the archive.
	LeftBehind int `json:"leftBehind,omitempty"`

	// Results are for each object. Of more than 5,000 objects, those that were created as they
	// were are left out.
	Results []RestoreResult `json:"results,omitempty"`
}

// Phase is the state of a Restore.
//
// +enum
type Phase string

// The phases. The last two are final.
const (
	// Running: the server works on it.
	Running Phase = "Running"
	// Waiting: it waits for objects that are being deleted.
	Waiting Phase = "Waiting"
	// Complete: all that was asked for exists again.
	Complete Phase = "Complete"
	// Incomplete: the results say what is missing, and why.
	Incomplete Phase = "Incomplete"
)

// Ended reports whether the phase is final.
func (p Phase) Ended() bool { return p == Complete || p == Incomplete }

// RestoreList is a list of Restores, the newest first.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type RestoreList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Restore `json:"items"`
}

// Outcome is the result of a restore for one object.
//
// +enum
type Outcome string

// The outcomes. In a dry run they say what would happen.
const (
	// Created: it exists again.
	Created Outcome = "created"
	// Skipped: the name is taken; nothing is overwritten.
	Skipped Outcome = "skipped"
	// Failed: the server refused it; the reason says why.
	Failed Outcome = "failed"
	// Awaited: it is being deleted, or needs what is. It is restored when that is gone.
	Awaited Outcome = "awaited"
	// Changed: it is as it was at the time of a revert.
	Changed Outcome = "changed"
	// Deleted: it was created after the time of a revert, which deleted it.
	Deleted Outcome = "deleted"
	// CalledOff: its deletion waited for confirmation; it is ACTIVE again, with the
	// same uid.
	CalledOff Outcome = "called off"
)

// RestoreResult is the result for one object.
type RestoreResult struct {
	// APIVersion is the object's.
	APIVersion string `json:"apiVersion"`
	// Kind is the object's.
	Kind string `json:"kind"`
	// Namespace is the object's.
	Namespace string `json:"namespace,omitempty"`
	// Name is the object's.
	Name string `json:"name"`
	// UID is the uid that it had.
	UID types.UID `json:"uid"`
	// NewUID is the uid of the object as it exists now: the same, but for a kind whose
	// restored objects are new ones.
	NewUID types.UID `json:"newUID,omitempty"`
	// Outcome is what became of it.
	Outcome Outcome `json:"outcome"`
	// Reason is why it was skipped or failed.
	Reason string `json:"reason,omitempty"`
	// Warnings are those of the create.
	Warnings []string `json:"warnings,omitempty"`
	// Changes is what differs from the object as it was when its deletion was asked for.
	Changes []Change `json:"changes,omitempty"`
	// ConflictsWith is the uid of the object that has the name now.
	ConflictsWith types.UID `json:"conflictsWith,omitempty"`
	// Relinked is how many dependents, restored before this owner without their
	// reference to it, got the reference back.
	Relinked int `json:"relinked,omitempty"`
}

// Change is a field that a restored object has with another value.
type Change struct {
	// Field is the path of the field.
	Field string `json:"field"`
	// Was is the value before, as JSON. It is empty if the field is new.
	Was string `json:"was,omitempty"`
	// Is is the value now, as JSON. It is empty if the field is gone.
	Is string `json:"is,omitempty"`
}

// String is a sentence.
func (c Change) String() string {
	switch {
	case c.Was == "":
		return fmt.Sprintf("%s is %s now, and was not set", c.Field, c.Is)
	case c.Is == "":
		return fmt.Sprintf("%s is not set now, and was %s", c.Field, c.Was)
	default:
		return fmt.Sprintf("%s is %s now, and was %s", c.Field, c.Is, c.Was)
	}
}

// Count sets the numbers of a status from its results.
func (s *RestoreStatus) Count() {
	s.Created, s.Skipped, s.Failed, s.Waiting, s.CalledOff, s.Conflicts = 0, 0, 0, 0, 0, 0
	s.Changed, s.Deleted = 0, 0
	for _, r := range s.Results {
		switch r.Outcome {
		case Created:
			s.Created++
		case Changed:
			s.Changed++
		case Deleted:
			s.Deleted++
		case Skipped:
			s.Skipped++
		case Failed:
			s.Failed++
		case Awaited:
			s.Waiting++
		case CalledOff:
			s.CalledOff++
		}
		if r.ConflictsWith != "" {
			s.Conflicts++
		}
	}
}
