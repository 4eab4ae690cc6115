package v1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// FinalizerRemoval takes a finalizer off an object that is being deleted, in
// place of the controller that should have done so.
type FinalizerRemoval struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   FinalizerRemovalSpec   `json:"spec"`
	Status FinalizerRemovalStatus `json:"status,omitempty"`
}

// FinalizerRemovalSpec is what to remove, and why.
type FinalizerRemovalSpec struct {
	// Object is the object. A uid beside its name is a precondition. An object
	// of a kind that nobody serves any more is named by uid alone, or with the
	// kind's plural and group in place of kind and apiVersion.
	Object ObjectReference `json:"object"`
	// Finalizer is the one to remove, from metadata.finalizers or, of a
	// Namespace, from spec.finalizers.
	Finalizer string `json:"finalizer"`
	// Reason is why, in words. It is kept in an Event about the object.
	Reason string `json:"reason"`
	// DryRun changes nothing and says what would become of the object.
	DryRun bool `json:"dryRun,omitempty"`
}

// FinalizerRemovalStatus is what became of the object.
type FinalizerRemovalStatus struct {
	// Object is the object that was found.
	Object ObjectReference `json:"object"`
	// Gone says that nothing else held the object, and that it was removed.
	Gone bool `json:"gone"`
	// Finalizers are those that still hold it.
	Finalizers []string `json:"finalizers,omitempty"`
}

// DeepCopyObject is for runtime.Object.
func (r *FinalizerRemoval) DeepCopyObject() runtime.Object { return r.DeepCopy() }

// DeepCopy copies the request and everything in it.
func (r *FinalizerRemoval) DeepCopy() *FinalizerRemoval {
	if r == nil {
		return nil
	}
	out := *r
	out.ObjectMeta = *r.ObjectMeta.DeepCopy()
	out.Status.Finalizers = slices.Clone(r.Status.Finalizers)
	return &out
}
