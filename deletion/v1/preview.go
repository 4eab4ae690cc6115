package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ObjectReference names an object: by uid, or by apiVersion, kind, name and,
// for kinds that live in one, namespace. If both are given, both must fit.
type ObjectReference struct {
	APIVersion string    `json:"apiVersion,omitempty"`
	Kind       string    `json:"kind,omitempty"`
	Namespace  string    `json:"namespace,omitempty"`
	Name       string    `json:"name,omitempty"`
	UID        types.UID `json:"uid,omitempty"`
}

// DeletionPreview asks what a delete would do.
type DeletionPreview struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   DeletionPreviewSpec   `json:"spec"`
	Status DeletionPreviewStatus `json:"status,omitempty"`
}

// DeletionPreviewSpec is the delete that is not done.
type DeletionPreviewSpec struct {
	Object ObjectReference `json:"object"`

	// PropagationPolicy and GracePeriodSeconds are those of the delete. Left
	// out, they are what they would be for a delete that leaves them out.
	PropagationPolicy  *metav1.DeletionPropagation `json:"propagationPolicy,omitempty"`
	GracePeriodSeconds *int64                      `json:"gracePeriodSeconds,omitempty"`

	// CountsOnly leaves out the items.
	CountsOnly bool `json:"countsOnly,omitempty"`
	// Limit bounds the items of one answer: 500 if zero, at most 10,000.
	Limit int64 `json:"limit,omitempty"`
	// Continue is status.continue of the answer before, for the items after
	// its last.
	Continue string `json:"continue,omitempty"`
}

// Action is what a deletion means for one object.
type Action string

// The actions. An object that a deletion does not touch has none.
const (
	// Delete: it will be gone.
	Delete Action = "Delete"
	// Orphan: it stays, and forgets an owner that orphans its dependents.
	Orphan Action = "Orphan"
	// Keep: it stays, because another owner keeps it.
	Keep Action = "Keep"
	// Block: it will be DELETING and stay so until somebody else acts: it has
	// finalizers of others, or a grace period.
	Block Action = "Block"
	// Wait: it is to go, but only after others: those that block it, the owner
	// it depends on, or what leaves a namespace before it.
	Wait Action = "Wait"
)

// Item is one object that a deletion touches.
type Item struct {
	ObjectReference `json:",inline"`

	Action Action `json:"action"`
	// Reason says why, for people.
	Reason string `json:"reason"`
	// Finalizers are those that others have to remove before it can go.
	Finalizers []string `json:"finalizers,omitempty"`
	// Owner is the uid of the item that it follows, if it follows one: its
	// owner, or the namespace or definition that it is in.
	Owner types.UID `json:"owner,omitempty"`
	// Uncertain says that the order in which the collector comes to things
	// decides, and that no order is promised. Action is the slower outcome.
	Uncertain bool `json:"uncertain,omitempty"`
}

// Count is how many objects of a kind have an action.
type Count struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind"`
	Action     Action `json:"action"`
	Count      int64  `json:"count"`
}

// DeletionPreviewStatus is the answer.
type DeletionPreviewStatus struct {
	// Object is the object that was found.
	Object ObjectReference `json:"object"`
	// Action is what becomes of it.
	Action Action `json:"action,omitempty"`
	// ResourceVersion is the state of the database that was looked at.
	ResourceVersion string `json:"resourceVersion,omitempty"`

	// Total counts every object that is touched, itself among them; Counts
	// does so by kind and action.
	Total  int64   `json:"total"`
	Counts []Count `json:"counts,omitempty"`
	// Blockers are the oldest of the objects whose action is Block: they are
	// what to look at first. BlockersTotal says how many there are.
	Blockers      []Item `json:"blockers,omitempty"`
	BlockersTotal int64  `json:"blockersTotal,omitempty"`

	// Items are the objects, the oldest first, of this page. Continue leads to
	// the next one; empty: there is none.
	Items    []Item `json:"items,omitempty"`
	Continue string `json:"continue,omitempty"`
	// Guard is what the guard makes of it. Absent: no limit applies.
	Guard *Guard `json:"guard,omitempty"`
	// Truncated says that there were more objects than a preview follows. The
	// counts are then lower bounds.
	Truncated bool `json:"truncated,omitempty"`
}

// Guard is what the guard makes of a deletion.
type Guard struct {
	// Limit is the most objects that may go without confirmation, the object
	// itself included.
	Limit int64 `json:"limit"`
	// Deletes is how many would go. Events are not counted.
	Deletes int64 `json:"deletes"`
	// Holds says that the deletion would wait, or waits, to be confirmed.
	Holds bool `json:"holds"`
}

// DeletionReport asks why something is still here.
type DeletionReport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   DeletionReportSpec   `json:"spec"`
	Status DeletionReportStatus `json:"status,omitempty"`
}

// DeletionReportSpec names an object, or a namespace.
type DeletionReportSpec struct {
	Object ObjectReference `json:"object,omitempty"`
	// Namespace is short for the object that is the Namespace of this name.
	Namespace string `json:"namespace,omitempty"`
}

// State is where in its life an object is.
type State string

// The states.
const (
	DoesNotExist State = "DOES_NOT_EXIST"
	Active       State = "ACTIVE"
	Deleting     State = "DELETING"
)

// DeletionReportStatus is the answer.
type DeletionReportStatus struct {
	Object ObjectReference `json:"object"`
	Exists bool            `json:"exists"`
	State  State           `json:"state,omitempty"`
	// ResourceVersion is the state of the database that was looked at.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Remaining counts what has to go first: dependents of the object, what is
	// in the namespace, or the objects of the definition.
	Remaining int64 `json:"remaining,omitempty"`
	// Reasons are all the reasons; what somebody has to act on comes first.
	Reasons []Reason `json:"reasons,omitempty"`
	// Truncated says that there are more reasons than are told.
	Truncated bool `json:"truncated,omitempty"`
}

// ReasonType is a sort of reason.
type ReasonType string

// The sorts of reasons.
const (
	// ReasonFinalizer: a finalizer that somebody has to remove.
	ReasonFinalizer ReasonType = "Finalizer"
	// ReasonSpecFinalizer: the same in a Namespace's spec.finalizers.
	ReasonSpecFinalizer ReasonType = "SpecFinalizer"
	// ReasonGuard: more would go than may without confirmation.
	ReasonGuard ReasonType = "Guard"
	// ReasonBlockingDependents: it goes after its dependents; they are the
	// children.
	ReasonBlockingDependents ReasonType = "BlockingDependents"
	// ReasonDependent: one of those, with its own reasons as children.
	ReasonDependent ReasonType = "Dependent"
	// ReasonWaitsFor: an object that whoever removes the finalizer waits for,
	// with its own reasons as children.
	ReasonWaitsFor ReasonType = "WaitsFor"
	// ReasonOrphaning: its dependents have yet to be let go.
	ReasonOrphaning ReasonType = "Orphaning"
	// ReasonGracePeriod: whoever runs it has time to end.
	ReasonGracePeriod ReasonType = "GracePeriod"
	// ReasonNamespaceContent: the namespace is not empty; what is left is in
	// the children.
	ReasonNamespaceContent ReasonType = "NamespaceContent"
	// ReasonDefinitionContent: objects of the defined kind are left.
	ReasonDefinitionContent ReasonType = "DefinitionContent"
	// ReasonContent: an object that is left, with its own reasons as children.
	ReasonContent ReasonType = "Content"
	// ReasonReview: the collector's review of it is due, under way or failing.
	ReasonReview ReasonType = "Review"
	// ReasonCollectorPaused: the collector has been paused.
	ReasonCollectorPaused ReasonType = "CollectorPaused"
	// ReasonCollectorOff: the server that answers was started without a
	// collector.
	ReasonCollectorOff ReasonType = "CollectorOff"
	// ReasonNotDeleted: no client asked for its deletion.
	ReasonNotDeleted ReasonType = "NotDeleted"
	// ReasonGone: it was deleted; what has yet to follow it is in the children.
	ReasonGone ReasonType = "Gone"
	// ReasonOwner: an owner that keeps it.
	ReasonOwner ReasonType = "Owner"
)

// Reason is one reason why an object is still here.
type Reason struct {
	Type    ReasonType `json:"type"`
	Message string     `json:"message"`
	// Object is what the reason is about, if not the object itself.
	Object *ObjectReference `json:"object,omitempty"`
	// Manager is who set the finalizer, as managedFields have it.
	Manager string `json:"manager,omitempty"`
	// Since is when it began to be a reason.
	Since *metav1.Time `json:"since,omitempty"`
	// Resolve is what to do about it.
	Resolve  string   `json:"resolve,omitempty"`
	Children []Reason `json:"children,omitempty"`
}
