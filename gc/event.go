package gc

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/store"
)

// warningEvent tells people about a reference that cannot be right.
type warningEvent struct {
	about   object.Object
	meta    metav1.ObjectMeta
	owner   metav1.OwnerReference
	message string
}

// report notes references across namespaces. Kubernetes gives them the same
// reason.
func (s *session) report(o *item, m *metav1.ObjectMeta) {
	for _, r := range m.OwnerReferences {
		owner, known := s.owners[r.UID]
		if !known || !owner.Exists || owner.Namespace == "" || owner.Namespace == o.Namespace {
			continue
		}
		message := fmt.Sprintf("ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
			r.APIVersion, r.Kind, o.Namespace, r.Name, r.UID, o.Namespace)
		if o.Namespace == "" {
			message = fmt.Sprintf("ownerRef [%s/%s, name: %s, uid: %s] is namespaced, but %s is cluster-scoped: it is never collected",
				r.APIVersion, r.Kind, r.Name, r.UID, o.Name)
		}
		s.events = append(s.events, warningEvent{o.Object, *m, r, message})
	}
}

// writeEvents is an effect: it runs after the commit, and again after a crash.
// The events' names follow from what they say, so a repetition changes nothing.
func (c *Collector) writeEvents(events []warningEvent) review.Effect {
	return func(ctx context.Context) error {
		for _, e := range events {
			if err := c.writeEvent(ctx, e); err != nil {
				return err
			}
		}
		return nil
	}
}

func (c *Collector) writeEvent(ctx context.Context, w warningEvent) error {
	namespace := w.about.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	now := metav1.NewTime(c.opts.Now())
	kind, apiVersion := c.kindOf(w.about.Kind)
	hash := fnv.New64a()
	fmt.Fprint(hash, w.about.UID, w.owner.UID)
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s.%x", w.about.Name, hash.Sum64()), Namespace: namespace,
			UID: types.UID(uuid.NewString()), CreationTimestamp: now,
		},
		InvolvedObject: corev1.ObjectReference{
			Kind: kind, APIVersion: apiVersion, Namespace: w.about.Namespace, Name: w.about.Name,
			UID: w.about.UID, ResourceVersion: w.about.ResourceVersion(),
		},
		Reason: "OwnerRefInvalidNamespace", Message: w.message, Type: corev1.EventTypeWarning,
		Source: corev1.EventSource{Component: "garbage-collector-controller"}, ReportingController: "garbage-collector-controller",
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	body, err := object.Encode(e)
	if err != nil {
		return err
	}
	_, err = c.store.Create(ctx, store.CreateRequest{
		Key:  object.Key{Kind: "events", Namespace: namespace, Name: e.Name},
		Meta: e.ObjectMeta, Body: body, InNamespace: true,
	})
	var refused *object.Error
	if err == nil || asRefusal(err, &refused) {
		return nil // told already, or nobody to tell: the namespace is going
	}
	return err
}

// kindOf names a kind as clients know it.
func (c *Collector) kindOf(storage string) (kind, apiVersion string) {
	if k, ok := c.kinds.Snapshot().Stored(storage); ok && len(k.Versions) > 0 {
		return k.Name, k.Versions[0].GVK.GroupVersion().String()
	}
	plural, group, _ := strings.Cut(storage, ".")
	return plural, group
}
