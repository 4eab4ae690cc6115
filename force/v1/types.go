// Package v1 is the part of the API group lifecycle.exeunt.dev/v1 that
// overrides: FinalizerRemoval takes somebody else's finalizer off an object
// that is being deleted. It is a request in the form of an object: a create is
// answered in status, and nothing is stored but what it did.
//
// The package holds types and nothing else. What answers is package force.
package v1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	foresightv1 "github.com/exeunt/exeunt/foresight/v1"
)

// GroupVersion is the group and version of these kinds.
var GroupVersion = schema.GroupVersion{Group: "lifecycle.exeunt.dev", Version: "v1"}

// AddToScheme makes a scheme know the kinds.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &FinalizerRemoval{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

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
	Object foresightv1.ObjectReference `json:"object"`
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
	Object foresightv1.ObjectReference `json:"object"`
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
