package gc

import (
	"bytes"
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
	rows, err := w.db.Query(context.Background(), `SELECT revision, type, kind, namespace, name, body FROM changes ORDER BY revision`)
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

// checkHistory reads the log again and asks of every change that the collector
// made whether the rules allowed it at that moment.
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
			next = s.modelOf(c)
		}
		if !s.client[c.revision] {
			if why := at.allows(at.objects[name], next); why != "" {
				s.Errorf("revision %d, %s: %s\nbefore: %s", c.revision, name, why, at.state())
				return
			}
		}
		if next == nil {
			delete(at.objects, name)
		} else {
			at.objects[name] = next
		}
	}
}

func (s *script) modelOf(c change) *modelObject {
	s.Helper()
	m, err := object.ParseMeta(c.body)
	if err != nil {
		s.Fatal(err)
	}
	o := &modelObject{name: nameOf(c.key), finalizers: m.Finalizers, deleting: m.DeletionTimestamp != nil}
	o.namespaced = c.key.Kind == "namespaces" && bytes.Contains(c.body, []byte(`["kubernetes"]`))
	for _, r := range m.OwnerReferences {
		o.owners = append(o.owners, modelRef{s.named[r.UID], r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion})
	}
	return o
}

// allows says why the collector must not turn one state of an object into
// another (nil: gone), or nothing.
func (m *model) allows(from, to *modelObject) string {
	switch {
	case from == nil:
		return "it was created"
	case !from.deleting && (to == nil || to.deleting):
		return m.allowsDeletion(from)
	case from.namespaced && (to == nil || !to.namespaced) && m.hasContent(from.name):
		return "the namespace was released with content in it"
	case to == nil:
		return m.allowsRelease(from, from.finalizers)
	}
	for _, r := range from.owners {
		if slices.Contains(to.owners, r) {
			continue
		}
		if why := m.allowsDrop(from, to, r.owner); why != "" {
			return why
		}
	}
	var lost []string
	for _, f := range from.finalizers {
		if !to.has(f) {
			lost = append(lost, f)
		}
	}
	return m.allowsRelease(from, lost)
}

// allowsDeletion: all owners are gone or wait, or the namespace is going.
func (m *model) allowsDeletion(o *modelObject) string {
	if ns := m.objects["namespaces:/"+keyOf(o.name).Namespace]; ns != nil && ns.deleting {
		return ""
	}
	if len(o.owners) == 0 {
		return "deleted, and it had no owners"
	}
	for _, r := range o.owners {
		if m.standing(o, r.owner) == "solid" {
			return "deleted, and its owner " + r.owner + " is solid"
		}
	}
	return ""
}

// allowsDrop: the owner lets go of its dependents, or is no owner any more and
// another one is.
func (m *model) allowsDrop(from, to *modelObject, owner string) string {
	standing := m.standing(from, owner)
	o := m.objects[owner]
	if o != nil && o.deleting && o.has(metav1.FinalizerOrphanDependents) {
		return ""
	}
	if standing == "solid" {
		return "lost its reference to " + owner + ", which is solid"
	}
	if standing == "waiting" && len(to.owners) == 0 {
		return "lost its last reference to " + owner + ", which waits for it"
	}
	return ""
}

// allowsRelease: finalizers leave, or the object with its last ones.
func (m *model) allowsRelease(o *modelObject, lost []string) string {
	for _, f := range lost {
		switch {
		case f == metav1.FinalizerOrphanDependents && len(m.dependents(o.name)) > 0 && !m.onlyItself(o):
			return "released, and it still has dependents"
		case f == metav1.FinalizerOrphanDependents:
		case f == metav1.FinalizerDeleteDependents && m.blocked(o.name) && !m.waitsForItself(o.name):
			return "released, and dependents still block it"
		case f == metav1.FinalizerDeleteDependents:
		default:
			return fmt.Sprintf("finalizer %s is not ours to remove", f)
		}
	}
	return ""
}

func (m *model) onlyItself(o *modelObject) bool {
	d := m.dependents(o.name)
	return len(d) == 1 && d[0].name == o.name
}

func (m *model) hasContent(namespace string) bool {
	for name := range m.objects {
		if keyOf(name).Namespace == keyOf(namespace).Name {
			return true
		}
	}
	return false
}
