package gc

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/kind/event"
)

// report adds Events about suspicious references: to an object of another kind,
// name or namespace, or to an owner that cannot be looked up. Kubernetes has the
// reason OwnerRefInvalidNamespace too.
func (s *session) report(o *item, m *metav1.ObjectMeta) {
	for i := range m.OwnerReferences {
		r := &m.OwnerReferences[i]
		owner := s.owners[r.UID]
		switch standing, named := s.standing(o, r); {
		case standing == Dangling && owner.Exists && !named.Same:
			s.warn(o, r, "OwnerRefMismatch", fmt.Sprintf("ownerRef [%s/%s, name: %s, uid: %s] does not exist: the object with that uid has another kind or name",
				r.APIVersion, r.Kind, r.Name, r.UID))
		case standing == Dangling && owner.Exists && owner.Namespace != "" && owner.Namespace != o.Namespace:
			s.warn(o, r, "OwnerRefInvalidNamespace", fmt.Sprintf("ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
				r.APIVersion, r.Kind, o.Namespace, r.Name, r.UID, o.Namespace))
		case standing == Unresolvable:
			s.warn(o, r, "OwnerRefInvalidNamespace", fmt.Sprintf("ownerRef [%s/%s, name: %s, uid: %s] is namespaced, but %s is cluster-scoped: it is never collected",
				r.APIVersion, r.Kind, r.Name, r.UID, o.Name))
		case standing == Unknown:
			s.warn(o, r, "OwnerRefUnknownKind", fmt.Sprintf("ownerRef [%s/%s, name: %s, uid: %s] names a kind that this server does not serve: %s is kept until the kind is served and the owner can be looked up",
				r.APIVersion, r.Kind, r.Name, r.UID, o.Name))
		}
	}
}

func (s *session) warn(o *item, r *metav1.OwnerReference, reason, message string) {
	s.events = append(s.events, event.Event{
		About: o.Object, Type: corev1.EventTypeWarning, Reason: reason, Message: message,
		Source: reporter, Topic: string(r.UID), Once: true,
	})
}

// reporter is the name that Kubernetes gives the collector.
const reporter = "garbage-collector-controller"
