package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ObjectReference names an object: by uid, or by apiVersion, kind, name and, for
// namespaced kinds, namespace. If both are given, both must match.
type ObjectReference struct {
	// APIVersion is the group and version of the object's kind.
	APIVersion string `json:"apiVersion,omitempty"`
	// Kind is the kind of the object.
	Kind string `json:"kind,omitempty"`
	// Namespace is the namespace of the object, if its kind is namespaced.
	Namespace string `json:"namespace,omitempty"`
	// Name is the name of the object.
	Name string `json:"name,omitempty"`
	// UID is the uid of the object. It is enough alone.
	UID types.UID `json:"uid,omitempty"`
}

// DeletionPreview asks what a delete would do, and does nothing. The answer is in status;
// nothing is stored.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type DeletionPreview struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the delete to preview.
	Spec DeletionPreviewSpec `json:"spec"`
	// Status is the answer.
	Status DeletionPreviewStatus `json:"status,omitempty"`
}

// DeletionPreviewSpec is the delete to preview.
type DeletionPreviewSpec struct {
	// Object is the object to delete.
	Object ObjectReference `json:"object"`

	// PropagationPolicy is that of the delete: Background, Foreground or Orphan. Its default is
	// that of a delete.
	PropagationPolicy *metav1.DeletionPropagation `json:"propagationPolicy,omitempty"`
	// GracePeriodSeconds is that of the delete. Its default is that of a delete.
	GracePeriodSeconds *int64 `json:"gracePeriodSeconds,omitempty"`

	// CountsOnly leaves out the items.
	CountsOnly bool `json:"countsOnly,omitempty"`
	// Limit bounds the items of one answer: 500 if zero, at most 10,000.
	Limit int64 `json:"limit,omitempty"`
	// Continue is status.continue of the previous answer: the items after its last.
	Continue string `json:"continue,omitempty"`
}

// Action is what a deletion means for one object.
//
// +enum
type Action string

// The actions. An object that a deletion does not touch has none.
const (
	// Delete: it is removed.
	Delete Action = "Delete"
	// Orphan: it stays, and loses the reference to an owner that orphans its
	// dependents.
	Orphan Action = "Orphan"
	// Keep: it stays, because another owner keeps it.
	Keep Action = "Keep"
	// Block: it becomes DELETING and stays so until another client acts: it has
	// finalizers of other controllers, or a grace period.
	Block Action = "Block"
	// Wait: it is removed, but only after other objects: those that block it, its
	// owner, or an earlier wave of its namespace.
	Wait Action = "Wait"
)

// Item is one object that a deletion touches.
type Item struct {
	ObjectReference `json:",inline"`

	// Action is what becomes of it.
	Action Action `json:"action"`
	// Reason says why, for people.
	Reason string `json:"reason"`
	// Finalizers are those that other controllers must remove first.
	Finalizers []string `json:"finalizers,omitempty"`
	// Owner is the uid of the item that causes this one, if any: its owner, or its
	// namespace or definition.
	Owner types.UID `json:"owner,omitempty"`
	// Owners are the owners that its metadata names, at most MaxOwners of them. The
	// object itself has none here: the client has it.
	Owners []Owner `json:"owners,omitempty"`
	// Uncertain says that the result depends on the order of the collector's
	// reviews, which is not guaranteed. Action is the slower result.
	Uncertain bool `json:"uncertain,omitempty"`
}

// MaxOwners bounds the owners of an Item: a client can give an object thousands.
const MaxOwners = 20

// Owner is an owner of an Item, as the item's metadata names it.
type Owner struct {
	// APIVersion is the group and version of the owner's kind.
	APIVersion string `json:"apiVersion,omitempty"`
	// Kind is the kind of the owner.
	Kind string `json:"kind"`
	// Name is the name of the owner.
	Name string `json:"name"`
	// UID is the uid of the owner.
	UID types.UID `json:"uid"`
	// Blocked says that a foreground deletion of the owner waits for the item.
	Blocked bool `json:"blocked,omitempty"`
}

// Count is how many objects of a kind have an action.
type Count struct {
	// APIVersion is the group and version of the kind.
	APIVersion string `json:"apiVersion,omitempty"`
	// Kind is the kind.
	Kind string `json:"kind"`
	// Action is the action.
	Action Action `json:"action"`
	// Count is how many.
	Count int64 `json:"count"`
}

// DeletionPreviewStatus is the answer.
type DeletionPreviewStatus struct {
	// Object is the object that was found.
	Object ObjectReference `json:"object"`
	// Action is what happens to that object.
	Action Action `json:"action,omitempty"`
	// Refused is the error that the server would answer the delete with, for instance
	// for the namespace default; then nothing is deleted. Empty if the delete is accepted.
	Refused string `json:"refused,omitempty"`
	// Judges are the webhooks and policies whose rules select deletes of a kind that goes:
	// they may refuse. The policies have been asked about the object itself and the items.
	Judges []string `json:"judges,omitempty"`
	// ResourceVersion is the database snapshot that the preview read.
	ResourceVersion string `json:"resourceVersion,omitempty"`

	// Total counts all objects that the deletion touches, the object itself included.
	Total int64 `json:"total"`
	// Counts is the total by kind and action.
	Counts []Count `json:"counts,omitempty"`
	// Blockers are the oldest 100 objects with the action Block: look at them first.
	Blockers []Item `json:"blockers,omitempty"`
	// BlockersTotal is how many objects block.
	BlockersTotal int64 `json:"blockersTotal,omitempty"`

	// Items are the objects of this page, the oldest first.
	Items []Item `json:"items,omitempty"`
	// Continue is the token of the next page. It is empty on the last one.
	Continue string `json:"continue,omitempty"`
	// Hidden is how many items of this page are left out because the client may not get
	// them. Total, Counts and BlockersTotal include them.
	Hidden int64 `json:"hidden,omitempty"`
	// Guard is the guard's decision. Absent: no limit applies.
	Guard *Guard `json:"guard,omitempty"`
	// Truncated says that the cascade is larger than a preview follows. The counts
	// are then lower bounds.
	Truncated bool `json:"truncated,omitempty"`
}

// Guard is the guard's decision about a deletion.
type Guard struct {
	// Limit is how many objects a deletion may remove without confirmation, the
	// object itself included.
	Limit int64 `json:"limit"`
	// Namespace is the namespace whose limit it is, if the deletion enters it from
	// outside and would remove more of its objects.
	Namespace string `json:"namespace,omitempty"`
	// Deletes is how many objects the deletion removes. Events are not counted.
	Deletes int64 `json:"deletes"`
	// Holds says that the deletion waits, or would wait, for confirmation.
	Holds bool `json:"holds"`
}

// DeletionReport asks why an object or namespace still exists. The answer is in status; nothing
// is stored.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type DeletionReport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec names what to report on.
	Spec DeletionReportSpec `json:"spec"`
	// Status is the answer.
	Status DeletionReportStatus `json:"status,omitempty"`
}

// DeletionReportSpec names an object, or a namespace.
type DeletionReportSpec struct {
	// Object is the object to report on.
	Object ObjectReference `json:"object,omitempty"`
	// Namespace is short for an Object that is the Namespace of this name.
	Namespace string `json:"namespace,omitempty"`
}

// State is the lifecycle state of an object.
//
// +enum
type State string

// The states.
const (
	// DoesNotExist: there is no such object.
	DoesNotExist State = "DOES_NOT_EXIST"
	// Active: it exists, and is not being deleted.
	Active State = "ACTIVE"
	// Deleting: it exists, and is being deleted.
	Deleting State = "DELETING"
)

// DeletionReportStatus is the answer.
type DeletionReportStatus struct {
	// Object is the object that was found.
	Object ObjectReference `json:"object"`
	// Exists is true if there is such an object.
	Exists bool `json:"exists"`
	// State is where in its life it is.
	State State `json:"state,omitempty"`
	// ResourceVersion is the database snapshot that the report read.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Remaining counts what must be removed first: the object's dependents, the
	// content of the namespace, or the objects of the definition.
	Remaining int64 `json:"remaining,omitempty"`
	// Reasons are all reasons; those that need an action come first.
	Reasons []Reason `json:"reasons,omitempty"`
	// Truncated says that there are more reasons than listed.
	Truncated bool `json:"truncated,omitempty"`
}

// ReasonType is the type of a reason.
type ReasonType string

// The types of reasons.
const (
	// ReasonFinalizer: a finalizer that a controller must remove.
	ReasonFinalizer ReasonType = "Finalizer"
	// ReasonSpecFinalizer: the same in a Namespace's spec.finalizers.
	ReasonSpecFinalizer ReasonType = "SpecFinalizer"
	// ReasonGuard: the cascade is larger than the limit and waits for confirmation.
	ReasonGuard ReasonType = "Guard"
	// ReasonBlockingDependents: it waits for its dependents, which are the children.
	ReasonBlockingDependents ReasonType = "BlockingDependents"
	// ReasonDependent: one of those, with its own reasons as children.
	ReasonDependent ReasonType = "Dependent"
	// ReasonWaitsFor: an object that the finalizer's controller waits for, with its
	// own reasons as children.
	ReasonWaitsFor ReasonType = "WaitsFor"
	// ReasonOrphaning: the collector has not yet orphaned its dependents.
	ReasonOrphaning ReasonType = "Orphaning"
	// ReasonGracePeriod: its grace period has not ended.
	ReasonGracePeriod ReasonType = "GracePeriod"
	// ReasonNamespaceContent: the namespace is not empty; its content is in the
	// children.
	ReasonNamespaceContent ReasonType = "NamespaceContent"
	// ReasonDefinitionContent: objects of the defined kind are left.
	ReasonDefinitionContent ReasonType = "DefinitionContent"
	// ReasonContent: an object that is left, with its own reasons as children.
	ReasonContent ReasonType = "Content"
	// ReasonReview: the collector's review of it is due, running or failing.
	ReasonReview ReasonType = "Review"
	// ReasonAdmission: webhooks or policies have not admitted the collector's delete.
	ReasonAdmission ReasonType = "Admission"
	// ReasonCollectorPaused: the collector is paused.
	ReasonCollectorPaused ReasonType = "CollectorPaused"
	// ReasonCollectorOff: the answering server runs without a collector.
	ReasonCollectorOff ReasonType = "CollectorOff"
	// ReasonNotDeleted: no client asked for its deletion.
	ReasonNotDeleted ReasonType = "NotDeleted"
	// ReasonExpires: the server deletes it at a time.
	ReasonExpires ReasonType = "Expires"
	// ReasonGoesWith: its namespace, or the definition of its kind, is being deleted.
	ReasonGoesWith ReasonType = "GoesWith"
	// ReasonGone: it was removed; the rest of its cascade is in the children.
	ReasonGone ReasonType = "Gone"
	// ReasonOwner: an owner that keeps it.
	ReasonOwner ReasonType = "Owner"
)

// Reason is one reason why an object still exists.
type Reason struct {
	// Type is the type of the reason, such as Finalizer, BlockingDependents or Review.
	Type ReasonType `json:"type"`
	// Message is the reason, for people.
	Message string `json:"message"`
	// Object is the object of the reason, if it is another one.
	Object *ObjectReference `json:"object,omitempty"`
	// Manager is the field manager that set the finalizer, from managedFields.
	Manager string `json:"manager,omitempty"`
	// Since is when the reason began.
	Since *metav1.Time `json:"since,omitempty"`
	// Resolve is what to do about it.
	Resolve string `json:"resolve,omitempty"`
	// Children are the reasons of this reason.
	Children []Reason `json:"children,omitempty"`
}
