// Package event records Kubernetes Events about objects, in the transaction that
// makes the change they report: both are committed or neither is.
//
// Clients find an Event by the uid of its object, also after the object is gone.
// The Event's name is computed from the object, the reason and the topic, so a
// repeated report, from any replica, increments the count of one Event.
//
// The client decides what to report. Begin with [Recorder.Record].
package event

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/due"
)

// maxName bounds, in bytes, the part of an object's name that begins its Event's
// name. With the hash behind it the name stays below the limit of 253.
const maxName = 200

// Event is a report about an object.
type Event struct {
	About   object.Object // may be gone already
	Type    string        // corev1.EventTypeNormal or EventTypeWarning
	Reason  string        // one word, for machines
	Message string        // for people
	Source  string        // the component that reports
	// Topic distinguishes Events with the same object and reason. Reports with the
	// same object, reason and topic are one Event.
	Topic string
	// Once: a repeated report changes nothing. Without it, a repeated report
	// replaces the message and increments the count.
	Once bool
	// Elsewhere: if the object's namespace is being deleted or does not exist, the
	// Event goes into the namespace default. Without it, the Event is dropped.
	Elsewhere bool
	// Until, if set, lets the Event stay at least until then.
	Until time.Time
}

// Recorder records Events. Kinds gives the kind names that clients use.
type Recorder struct{ Kinds *kind.Registry }

// Record writes Events in a transaction.
func (r Recorder) Record(ctx context.Context, tx *store.Tx, now time.Time, reports ...Event) error {
	for i := range reports {
		if err := r.record(ctx, tx, now, &reports[i]); err != nil {
			return fmt.Errorf("record event about %s: %w", reports[i].About.Key, err)
		}
	}
	return nil
}

func (r Recorder) record(ctx context.Context, tx *store.Tx, now time.Time, e *Event) error {
	namespace, ok, err := place(ctx, tx, e)
	if err != nil || !ok {
		return err
	}
	key := object.Key{Kind: object.Events, Namespace: namespace, Name: name(e)}
	before, err := tx.Get(ctx, key)
	if err != nil {
		return err
	}
	if before == nil {
		made := r.make(e, key, now)
		body, err := object.Encode(made)
		if err != nil {
			return err
		}
		tx.Create(key, &made.ObjectMeta, body)
	} else if e.Once || before.Deleting {
		return nil
	} else if err := repeat(ctx, tx, before, e, now); err != nil {
		return err
	}
	if err := tx.Flush(); err != nil {
		return err
	}
	if !e.Until.IsZero() {
		tx.Defer(due.KeepEvent, key.Namespace, key.Name, e.Until.UnixMilli())
	}
	return nil
}

// repeat increments the count of an Event that exists, and updates its message.
func repeat(ctx context.Context, tx *store.Tx, before *store.Stored, e *Event, now time.Time) error {
	var was corev1.Event
	gvk := schema.GroupVersionKind{Version: "v1", Kind: "Event"}
	if err := object.DecodeInto(before.Body, "", gvk, &was); err != nil {
		return err
	}
	was.Message, was.Type, was.Count, was.LastTimestamp = e.Message, e.Type, was.Count+1, metav1.NewTime(now)
	was.InvolvedObject.ResourceVersion = version(e.About)
	body, err := object.Encode(&was)
	if err != nil {
		return err
	}
	_, err = tx.Rewrite(before, &was.ObjectMeta, body)
	return err
}

// place returns the namespace for the Event. Events about cluster-scoped objects
// are in default, as in Kubernetes.
func place(ctx context.Context, tx *store.Tx, e *Event) (namespace string, ok bool, err error) {
	choices := []string{e.About.Namespace}
	if e.About.Namespace == "" {
		choices[0] = metav1.NamespaceDefault
	} else if e.Elsewhere {
		choices = append(choices, metav1.NamespaceDefault)
	}
	for _, namespace := range choices {
		h, found, err := tx.Head(ctx, object.Key{Kind: object.Namespaces, Name: namespace})
		if err != nil {
			return "", false, err
		}
		if found && h.Deletion == 0 {
			return namespace, true, nil
		}
	}
	return "", false, nil
}

// name returns the Event's name: equal for equal object, reason and topic.
func name(e *Event) string {
	hash := fnv.New64a()
	fmt.Fprintf(hash, "%s\x00%s\x00%s", e.About.UID, e.Reason, e.Topic)
	prefix := e.About.Name
	if len(prefix) > maxName {
		prefix = strings.TrimRight(prefix[:maxName], ".-")
	}
	return fmt.Sprintf("%s.%x", prefix, hash.Sum64())
}

func (r Recorder) make(e *Event, key object.Key, now time.Time) *corev1.Event {
	at := metav1.NewTime(now)
	kind, apiVersion := r.Kinds.Snapshot().Names(e.About.Kind)
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Name: key.Name, Namespace: key.Namespace, UID: object.NewUID(), CreationTimestamp: at,
		},
		InvolvedObject: corev1.ObjectReference{
			Kind: kind, APIVersion: apiVersion, Namespace: e.About.Namespace, Name: e.About.Name,
			UID: e.About.UID, ResourceVersion: version(e.About),
		},
		Reason: e.Reason, Message: e.Message, Type: e.Type,
		Source: corev1.EventSource{Component: e.Source}, ReportingController: e.Source,
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
	}
}

// version returns the object's resourceVersion, or "" if it is not known.
func version(o object.Object) string {
	if o.Revision == 0 {
		return ""
	}
	return o.ResourceVersion()
}
