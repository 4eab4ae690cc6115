package object

import (
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// New is an object that passed the rules of its kind: what the store needs to
// create it.
type New struct {
	Key  Key
	Meta metav1.ObjectMeta // the fields that the store keeps in columns
	Body []byte
	// InNamespace: the Namespace must exist and not be terminating.
	InNamespace bool
	// Definition, when set, is the object that declares the kind: it must exist
	// and not be terminating.
	Definition Key
	// With are the objects that the same transaction creates: all exist, or none.
	With []New
	// Taken, if set, is the error if the name is taken. ErrAgain: prepare the object
	// again, with another name.
	Taken error
}

// ErrAgain says that an object must be prepared again: what it chose is taken meanwhile.
var ErrAgain = errors.New("a choice is taken meanwhile")

// MetaOf copies the metadata that the store keeps in columns.
func MetaOf(m metav1.Object) metav1.ObjectMeta {
	if typed, ok := m.(*metav1.ObjectMeta); ok {
		return *typed
	}
	return metav1.ObjectMeta{
		Name:                       m.GetName(),
		Namespace:                  m.GetNamespace(),
		UID:                        m.GetUID(),
		Generation:                 m.GetGeneration(),
		CreationTimestamp:          m.GetCreationTimestamp(),
		DeletionTimestamp:          m.GetDeletionTimestamp(),
		DeletionGracePeriodSeconds: m.GetDeletionGracePeriodSeconds(),
		Labels:                     m.GetLabels(),
		Annotations:                m.GetAnnotations(),
		OwnerReferences:            m.GetOwnerReferences(),
		Finalizers:                 m.GetFinalizers(),
	}
}
