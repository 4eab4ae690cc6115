package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Cascade is one deletion as a unit: the object that a client deleted, and all that
// left or has to leave with it. It is read from the archive and the objects; nothing
// stores it. Its name is the id of the cascade, and it is in the namespace of its root.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Cascade struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what was deleted, when and by whom.
	Spec CascadeSpec `json:"spec"`
	// Status is how far the cascade is.
	Status CascadeStatus `json:"status"`
}

// CascadeSpec says what was deleted, when and by whom.
type CascadeSpec struct {
	// Root is the object that the client deleted. For a deleted collection it is the
	// first object that was removed.
	Root ObjectReference `json:"root"`
	// RequestedBy is the client whose delete began the cascade.
	RequestedBy string `json:"requestedBy"`
	// RequestID is the Audit-Id of that delete, under which the audit log has it. Absent:
	// no request of the API began the cascade.
	RequestID string `json:"requestID,omitempty"`
	// ConfirmedBy is the client that confirmed the deletion while the guard held it, the last one. Absent: none did.
	ConfirmedBy string `json:"confirmedBy,omitempty"`
	// StartedAt is when the first object was marked or removed.
	StartedAt metav1.MicroTime `json:"startedAt"`
	// LastRemovedAt is when the last object was removed. Absent: none was.
	LastRemovedAt *metav1.MicroTime `json:"lastRemovedAt,omitempty"`
}

// CascadeState is what a cascade is doing.
//
// +enum
type CascadeState string

// The states of a cascade.
const (
	// CascadeRunning: objects have to follow.
	CascadeRunning CascadeState = "running"
	// CascadeHeld: the guard waits for a confirmation.
	CascadeHeld CascadeState = "held"
	// CascadeEnded: it removes no more.
	CascadeEnded CascadeState = "ended"
	// CascadePartlyRestored: some of its objects were restored.
	CascadePartlyRestored CascadeState = "partly restored"
	// CascadeRestored: all of its objects were restored.
	CascadeRestored CascadeState = "restored"
)

// CascadeStatus is how far the cascade is.
type CascadeStatus struct {
	// State is what the cascade is doing.
	State CascadeState `json:"state"`
	// Removed is how many objects it removed that are in the archive.
	Removed int64 `json:"removed"`
	// Remaining is how many objects have to follow: those that are DELETING, and those that
	// will be. Of the latter it counts up to 100,001.
	Remaining int64 `json:"remaining"`
	// Restored is how many of the removed objects were restored.
	Restored int64 `json:"restored"`
	// Bytes is the size of the removed objects; of more than 10,000, it may be half a minute old.
	Bytes int64 `json:"bytes"`
	// Purged is how many objects clients purged from the archive: they cannot be restored.
	Purged int64 `json:"purged,omitempty"`
	// ExpiresAt is when the cascade leaves the archive, whole. Absent: it has not ended.
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
}

// CascadeList is a list of cascades: those under way first, then the newest.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type CascadeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Cascade `json:"items"`
}

// FinalizerRemoval removes a finalizer from an object that is being deleted, in
// place of the controller that should do so, and keeps the reason in an Event. It is answered in
// status and not stored.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type FinalizerRemoval struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what to remove, and why.
	Spec FinalizerRemovalSpec `json:"spec"`
	// Status is the result.
	Status FinalizerRemovalStatus `json:"status,omitempty"`
}

// FinalizerRemovalSpec is what to remove, and why.
type FinalizerRemovalSpec struct {
	// Object is the object. A uid beside its name is a precondition. To name an
	// object of a kind that is no longer served, give its uid alone, or the kind's
	// plural and group in place of kind and apiVersion.
	Object ObjectReference `json:"object"`
	// Finalizer is the one to remove, from metadata.finalizers or, of a
	// Namespace, from spec.finalizers.
	Finalizer string `json:"finalizer"`
	// Reason is why, in words. An Event about the object keeps it.
	Reason string `json:"reason"`
	// DryRun returns the result and changes nothing.
	DryRun bool `json:"dryRun,omitempty"`
}

// FinalizerRemovalStatus is the result.
type FinalizerRemovalStatus struct {
	// Object is the object that was found.
	Object ObjectReference `json:"object"`
	// Gone says that the object was removed, because nothing else held it.
	Gone bool `json:"gone"`
	// Finalizers are those that still hold the object.
	Finalizers []string `json:"finalizers,omitempty"`
}
