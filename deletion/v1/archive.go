package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
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

// ArchivedObjectSpec says what was removed, and how that came about.
type ArchivedObjectSpec struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Namespace  string    `json:"namespace,omitempty"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid"`

	RemovedAt metav1.Time `json:"removedAt"`
	// RequestedBy is the client whose delete began the cascade. Actor is who
	// deleted this object: the same client, or what followed up its delete, such
	// as system:garbage-collector.
	RequestedBy string `json:"requestedBy"`
	Actor       string `json:"actor"`
	// Cascade is shared by all that went for one reason. It is the uid of the
	// object whose deletion was the reason, or an id of its own for a
	// collection that was deleted.
	Cascade string `json:"cascade"`
	// Size is the length of the stored object in bytes.
	Size int64 `json:"size"`
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

// RestoreSpec says what to bring back: exactly one of UID, Cascade and Object, and
// with UID or Object perhaps WithCascade.
type RestoreSpec struct {
	// UID is the uid that the object had.
	UID types.UID `json:"uid,omitempty"`
	// Cascade is everything that went for one reason.
	Cascade string `json:"cascade,omitempty"`
	// Object is the newest removed object of that name; of several in one
	// cascade the first, which was there when it began.
	Object *ObjectName `json:"object,omitempty"`
	// WithCascade also restores everything that went in the same cascade as the
	// object: the content of a namespace, the objects of a definition, dependents.
	WithCascade bool `json:"withCascade,omitempty"`

	// DryRun changes nothing and says what would be done.
	DryRun bool `json:"dryRun,omitempty"`
	// KeepStatus restores the status too.
	KeepStatus bool `json:"keepStatus,omitempty"`
	// KeepManagedFields restores metadata.managedFields too.
	KeepManagedFields bool `json:"keepManagedFields,omitempty"`
}

// ObjectName names an object. Kind may be anything that kubectl takes for one:
// "Deployment", "deploy", "deployments.apps".
type ObjectName struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
}

// RestoreStatus says what became of each object, parents first.
type RestoreStatus struct {
	// Complete is false when the time for an answer was over before all
	// objects were dealt with: the same Restore again goes on from there.
	Complete bool `json:"complete"`

	Created int `json:"created"`
	Skipped int `json:"skipped"`
	Failed  int `json:"failed"`
	// CalledOff is 1 when the object was not gone yet, because the guard held its
	// deletion, and is ACTIVE again.
	CalledOff int `json:"calledOff,omitempty"`
	// Conflicts is how many of the skipped have their name taken by another object.
	Conflicts int `json:"conflicts,omitempty"`

	// Cascade is what the object went with, and LeftBehind how many objects that
	// went in it are still only in the archive. Set for one object that is restored
	// alone.
	Cascade    string `json:"cascade,omitempty"`
	LeftBehind int    `json:"leftBehind,omitempty"`

	Results []RestoreResult `json:"results,omitempty"`
}

// Outcome is what became of one object of a restore.
type Outcome string

// The outcomes. In a dry run they are what would be.
const (
	Created Outcome = "created"
	Skipped Outcome = "skipped" // the name is taken; nothing is overwritten
	Failed  Outcome = "failed"
	// CalledOff: it was not gone yet, its deletion waited to be confirmed; now
	// it is ACTIVE again, with the uid that it had.
	CalledOff Outcome = "called off"
)

// RestoreResult is what became of one object.
type RestoreResult struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Namespace  string    `json:"namespace,omitempty"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid"`
	// NewUID is the uid of the object as it exists now.
	NewUID   types.UID `json:"newUID,omitempty"`
	Outcome  Outcome   `json:"outcome"`
	Reason   string    `json:"reason,omitempty"`
	Warnings []string  `json:"warnings,omitempty"`
	// ConflictsWith is the uid of the object that has the name now.
	ConflictsWith types.UID `json:"conflictsWith,omitempty"`
	// Relinked is how many objects that were restored before it, without their
	// references to it, refer to it again.
	Relinked int `json:"relinked,omitempty"`
}
