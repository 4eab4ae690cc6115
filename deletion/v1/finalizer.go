package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
