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
type ArchivedObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ArchivedObjectSpec `json:"spec"`
	// Object is the original as it was last stored. Absent: it was not kept.
	Object *runtime.RawExtension `json:"object,omitempty"`
}

// ArchivedObjectSpec says what was removed, when, by whom, and in which cascade.
type ArchivedObjectSpec struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Namespace  string    `json:"namespace,omitempty"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid"`

	RemovedAt metav1.Time `json:"removedAt"`
	// ExpiresAt is when its cascade leaves the archive, whole, if it removes no more.
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
	// RequestedBy is the client whose delete began the cascade. Actor is the user
	// that deleted this object: the same client, or a controller that continued the
	// cascade, such as system:garbage-collector.
	RequestedBy string `json:"requestedBy"`
	Actor       string `json:"actor"`
	// RequestID is the Audit-Id of the delete that began the cascade, under which the
	// audit log has it. Absent: no request of the API began the cascade.
	RequestID string `json:"requestID,omitempty"`
	// Cascade is the id that all objects removed by one delete share: the uid of
	// the object that the client deleted, or a new id for a DeleteCollection.
	Cascade string `json:"cascade"`
	// Size is the length of the stored object in bytes.
	Size int64 `json:"size"`
}

// Left is the time until something leaves the archive, for people; empty: that is not known. What is
// over leaves with the next run of expiry.
func Left(until *metav1.Time) string {
	if until == nil {
		return ""
	}
	return duration.HumanDuration(max(0, time.Until(until.Time)))
}

// ArchivedObjectList is a list of archived objects, the newest removal first.
type ArchivedObjectList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ArchivedObject `json:"items"`
}

// Restore brings removed objects back. It is answered and not stored.
type Restore struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   RestoreSpec   `json:"spec"`
	Status RestoreStatus `json:"status,omitempty"`
}

// RestoreSpec says what to restore: exactly one of UID, Cascade and Object.
// WithCascade is allowed with UID and Object.
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

	// DryRun returns the results and changes nothing.
	DryRun bool `json:"dryRun,omitempty"`
	// KeepTokens restores the tokens of Users too, which their deletion revoked: they
	// are valid again.
	KeepTokens bool `json:"keepTokens,omitempty"`
}

// ObjectName names an object. Kind is any form that kubectl accepts: "Deployment",
// "deploy", "deployments.apps".
type ObjectName struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
}

// RestoreStatus is the result for each object, owners first.
type RestoreStatus struct {
	// Complete is false if the request's time ended before all objects were
	// restored. The same Restore, sent again, continues.
	Complete bool `json:"complete"`

	Created int `json:"created"`
	Skipped int `json:"skipped"`
	Failed  int `json:"failed"`
	// CalledOff is 1 if the guard held the object's deletion. The object was never
	// removed and is ACTIVE again.
	CalledOff int `json:"calledOff,omitempty"`
	// Conflicts is how many were skipped because another object has the name.
	Conflicts int `json:"conflicts,omitempty"`

	// Cascade is the object's cascade, and LeftBehind how many other objects of it
	// are still only in the archive. Set if one object is restored alone.
	Cascade    string `json:"cascade,omitempty"`
	LeftBehind int    `json:"leftBehind,omitempty"`

	Results []RestoreResult `json:"results,omitempty"`
}

// Outcome is the result of a restore for one object.
type Outcome string

// The outcomes. In a dry run they say what would happen.
const (
	Created Outcome = "created"
	Skipped Outcome = "skipped" // the name is taken; nothing is overwritten
	Failed  Outcome = "failed"
	// CalledOff: its deletion waited for confirmation; it is ACTIVE again, with the
	// same uid.
	CalledOff Outcome = "called off"
)

// RestoreResult is the result for one object.
type RestoreResult struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Namespace  string    `json:"namespace,omitempty"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid"`
	// NewUID is the uid of the object as it exists now: the same, but for a kind whose
	// restored objects are new ones.
	NewUID   types.UID `json:"newUID,omitempty"`
	Outcome  Outcome   `json:"outcome"`
	Reason   string    `json:"reason,omitempty"`
	Warnings []string  `json:"warnings,omitempty"`
	// Changes is what differs from the object as it was when its deletion was asked for.
	Changes []Change `json:"changes,omitempty"`
	// ConflictsWith is the uid of the object that has the name now.
	ConflictsWith types.UID `json:"conflictsWith,omitempty"`
	// Relinked is how many dependents, restored before this owner without their
	// reference to it, got the reference back.
	Relinked int `json:"relinked,omitempty"`
}

// Change is a field that a restored object has with another value, as JSON. Was is empty if
// the field is new, Is if it is gone.
type Change struct {
	Field string `json:"field"`
	Was   string `json:"was,omitempty"`
	Is    string `json:"is,omitempty"`
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
