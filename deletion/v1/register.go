package v1

import (
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of these kinds.
var GroupVersion = schema.GroupVersion{Group: "lifecycle.exeunt.dev", Version: "v1"}

// AddToScheme registers the kinds in a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &DeletionPreview{}, &DeletionReport{}, &FinalizerRemoval{},
		&ArchivedObject{}, &ArchivedObjectList{}, &Cascade{}, &CascadeList{}, &Restore{}, &RestoreList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Scheme has the kinds, and the types of a server's other answers.
var Scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := AddToScheme(s); err != nil {
		panic(fmt.Sprintf("scheme of %s: %v", GroupVersion, err)) // the input is constant: one test call proves it
	}
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s
})
