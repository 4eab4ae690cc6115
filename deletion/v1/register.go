// Package v1 holds the API types of lifecycle.exeunt.dev/v1: DeletionPreview and
// DeletionReport, which answer questions; ArchivedObject, which is read; Restore
// and FinalizerRemoval, which act. Except for ArchivedObject each is a request
// in the form of an object: a create is answered in status, and nothing of it
// is stored.
//
// The package holds types and nothing else. The packages preview, archive and
// finalizer beside it answer.
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of these kinds.
var GroupVersion = schema.GroupVersion{Group: "lifecycle.exeunt.dev", Version: "v1"}

// AddToScheme makes a scheme know the kinds.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &DeletionPreview{}, &DeletionReport{}, &FinalizerRemoval{},
		&ArchivedObject{}, &ArchivedObjectList{}, &Restore{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
