package gc

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
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
	for i := range m.OwnerReferences {
		r := &m.OwnerReferences[i]
		owner := s.owners[r.UID]
		switch s.standing(o, r) {
		case Dangling:
			if owner.Exists { // so it is in another namespace
				s.warn(o, m, r, fmt.Sprintf("ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
					r.APIVersion, r.Kind, o.Namespace, r.Name, r.UID, o.Namespace))
			}
		case Unresolvable:
			s.warn(o, m, r, fmt.Sprintf("ownerRef [%s/%s, name: %s, uid: %s] is namespaced, but %s is cluster-scoped: it is never collected",
				r.APIVersion, r.Kind, r.Name, r.UID, o.Name))
		}
	}
}

func (s *session) warn(o *item, m *metav1.ObjectMeta, r *metav1.OwnerReference, message string) {
	s.events = append(s.events, warningEvent{o.Object, *m, *r, message})
}

// writeEvents is part of the review's transaction: what was decided is told,
// or neither happens. The events' names follow from what they say, so that each
// is told once.
func (s *session) writeEvents(ctx context.Context) error {
	for _, w := range s.events {
		if err := s.writeEvent(ctx, w); err != nil {
			return fmt.Errorf("report %s: %w", w.about.Key, err)
		}
	}
	return s.tx.Flush(ctx)
}

func (s *session) writeEvent(ctx context.Context, w warningEvent) error {
	e := s.newEvent(w)
	key := object.Key{Kind: "events", Namespace: e.Namespace, Name: e.Name}
	var told, open bool
	var b sqldb.Batch
	b.Query(func(row sqldb.Row) error {
		var deleting bool
		err := row.Scan(&deleting)
		open = !deleting
		return err
	}, isTaken, "namespaces", "", e.Namespace)
	b.Query(func(row sqldb.Row) error {
		told = true
		return row.Scan(new(bool))
	}, isTaken, key.Kind, key.Namespace, key.Name)
	if err := s.tx.Send(ctx, &b); err != nil {
		return err
	}
	if told || !open {
		return nil
	}
	body, err := object.Encode(e)
	if err != nil {
		return err
	}
	s.tx.Create(key, &e.ObjectMeta, body)
	return s.tx.Flush(ctx)
}

func (s *session) newEvent(w warningEvent) *corev1.Event {
	namespace := w.about.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	now := metav1.NewTime(s.now)
	kind, apiVersion := s.c.kindOf(w.about.Kind)
	hash := fnv.New64a()
	fmt.Fprint(hash, w.about.UID, w.owner.UID)
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s.%x", w.about.Name, hash.Sum64()), Namespace: namespace,
			UID: types.UID(uuid.NewString()), CreationTimestamp: now,
		},
		InvolvedObject: corev1.ObjectReference{
			Kind: kind, APIVersion: apiVersion, Namespace: w.about.Namespace, Name: w.about.Name,
			UID: w.about.UID, ResourceVersion: w.about.ResourceVersion(),
		},
		Reason: "OwnerRefInvalidNamespace", Message: w.message, Type: corev1.EventTypeWarning,
		Source: corev1.EventSource{Component: reporter}, ReportingController: reporter,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
}

// reporter is the name that Kubernetes gives the collector.
const reporter = "garbage-collector-controller"

// kindOf names a kind as clients know it.
func (c *Collector) kindOf(storage string) (kind, apiVersion string) {
	if k, ok := c.kinds.Snapshot().Stored(storage); ok && len(k.Versions) > 0 {
		return k.Name, k.Versions[0].GVK.GroupVersion().String()
	}
	plural, group, _ := strings.Cut(storage, ".")
	return plural, group
}

// namespaced says whether a reference names a kind that lives in namespaces.
// Of a kind that nobody serves it is not known, and the answer is no.
func (c *Collector) namespaced(r *metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(r.APIVersion)
	if err != nil {
		return false
	}
	for _, k := range c.kinds.Snapshot().Kinds {
		if k.Group == gv.Group && k.Name == r.Kind {
			return k.Namespaced
		}
	}
	return false
}
