package gc

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/tell"
)

// report notes references across namespaces. Kubernetes gives them the same
// reason.
func (s *session) report(o *item, m *metav1.ObjectMeta) {
	for i := range m.OwnerReferences {
		r := &m.OwnerReferences[i]
		owner := s.owners[r.UID]
		switch s.standing(o, r) {
		case Dangling:
			if owner.Exists { // so it is in another namespace
				s.warn(o, r, fmt.Sprintf("ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
					r.APIVersion, r.Kind, o.Namespace, r.Name, r.UID, o.Namespace))
			}
		case Unresolvable:
			s.warn(o, r, fmt.Sprintf("ownerRef [%s/%s, name: %s, uid: %s] is namespaced, but %s is cluster-scoped: it is never collected",
				r.APIVersion, r.Kind, r.Name, r.UID, o.Name))
		}
	}
}

func (s *session) warn(o *item, r *metav1.OwnerReference, message string) {
	s.events = append(s.events, tell.Event{
		About: o.Object, Type: corev1.EventTypeWarning, Reason: "OwnerRefInvalidNamespace", Message: message,
		Source: reporter, Topic: string(r.UID), Once: true,
	})
}

// reporter is the name that Kubernetes gives the collector.
const reporter = "garbage-collector-controller"

// NamesNamespaced says whether a reference names a kind that lives in
// namespaces. Of a kind that nobody serves it is not known, and the answer is
// no.
func NamesNamespaced(kinds *kind.Snapshot, r *metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(r.APIVersion)
	if err != nil {
		return false
	}
	for _, k := range kinds.Kinds {
		if k.Group == gv.Group && k.Name == r.Kind {
			return k.Namespaced
		}
	}
	return false
}
