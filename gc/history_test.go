package gc

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/object"
)

// change is a row of the log.
type change struct {
	revision int64
	kind     int // 1 created, 2 updated, 3 removed
	key      object.Key
	body     []byte
}

func (w *world) changes() []change {
	w.Helper()
	rows, err := w.db.Reader().QueryContext(context.Background(), `SELECT revision, type, kind, namespace, name, body FROM changes ORDER BY revision`)
	if err != nil {
		w.Fatal(err)
	}
	defer rows.Close()
	var out []change
	for rows.Next() {
		var c change
		if err := rows.Scan(&c.revision, &c.kind, &c.key.Kind, &c.key.Namespace, &c.key.Name, &c.body); err != nil {
			w.Fatal(err)
		}
		out = append(out, c)
	}
	if err := rows.Err(); err != nil {
		w.Fatal(err)
	}
	return out
}

// checkHistory reads the log again: every change that the collector made is a
// step that the model allows at that moment.
func (s *script) checkHistory() {
	s.Helper()
	at := newModel()
	for _, c := range s.changes() {
		if c.key.Kind == "events" {
			continue
		}
		name := nameOf(c.key)
		var next *modelObject
		if c.kind != 3 {
			next = s.modelOf(c.key, c.body)
		}
		if !s.client[c.revision] {
			if why := at.refuses(name, next); why != "" {
				s.Errorf("revision %d: %s\nbefore: %s", c.revision, why, at.state())
				return
			}
		}
		at.become(name, next)
	}
}

// refuses says why the collector must not make this of an object, or nothing.
func (m *model) refuses(name string, to *modelObject) string {
	from := m.objects[name]
	if from == nil {
		return to.String() + " was created"
	}
	if keyOf(name).Kind == "namespaces" && from.String() == to.String() {
		return "" // its conditions
	}
	steps := m.steps(name)
	if slices.ContainsFunc(steps, func(o *modelObject) bool { return o.String() == to.String() }) {
		return ""
	}
	return fmt.Sprintf("%s became %s; the model allows %v", from, to, steps)
}

// checkRest: the collector has come to rest, so the model has no step left.
func (s *script) checkRest() {
	s.Helper()
	for _, name := range s.model.names() {
		if steps := s.model.steps(name); len(steps) > 0 {
			s.Errorf("the collector rests; the model makes of %s: %v\nstate: %s", s.model.objects[name], steps, s.model.state())
		}
	}
	if queue := s.queue(); queue != "" {
		s.Errorf("the queue is not empty: %s", queue)
	}
}

// modelRef is a reference as the model has it.
func (s *script) modelRef(r *metav1.OwnerReference) modelRef {
	s.Helper()
	ref := modelRef{owner: s.named[r.UID], blocks: r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion}
	right := s.reference(ref.owner, false)
	switch {
	case r.Kind == "Gadget":
		ref.as = unknownOne
	case r.Kind != right.Kind:
		ref.as = wrongKind
	case r.Name != right.Name:
		ref.as = wrongName
	}
	return ref
}

// modelOf is an object as the model has it.
func (s *script) modelOf(key object.Key, body []byte) *modelObject {
	s.Helper()
	m, err := object.ParseMeta(body)
	if err != nil {
		s.Fatal(err)
	}
	o := &modelObject{name: nameOf(key), finalizers: m.Finalizers, deleting: m.DeletionTimestamp != nil}
	o.namespaced = key.Kind == "namespaces" && !s.rules(key.Kind).Removable(body)
	for _, r := range m.OwnerReferences {
		o.owners = append(o.owners, s.modelRef(&r))
	}
	return o
}
