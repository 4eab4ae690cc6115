package gc

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// model is spec 1 in memory, as naive as can be: it looks at everything until
// nothing changes any more. Objects go by the short names of world, which the
// scripts use once each.
type model struct {
	objects map[string]*modelObject
}

type modelObject struct {
	name       string
	owners     []modelRef
	finalizers []string
	deleting   bool
	namespaced bool // it is a Namespace, and we hold it
}

type modelRef struct {
	owner  string
	blocks bool
}

func newModel() *model { return &model{objects: map[string]*modelObject{}} }

func (m *model) names() []string { return slices.Sorted(maps.Keys(m.objects)) }

// dependents of an owner, by name.
func (m *model) dependents(owner string) []*modelObject {
	var out []*modelObject
	for _, name := range m.names() {
		if slices.ContainsFunc(m.objects[name].owners, func(r modelRef) bool { return r.owner == owner }) {
			out = append(out, m.objects[name])
		}
	}
	return out
}

func (o *modelObject) has(finalizer string) bool { return slices.Contains(o.finalizers, finalizer) }

func (o *modelObject) drop(finalizer string) {
	o.finalizers = slices.DeleteFunc(slices.Clone(o.finalizers), func(f string) bool { return f == finalizer })
}

// delete is the deletion handler.
func (m *model) delete(name string, policy metav1.DeletionPropagation) {
	o := m.objects[name]
	o.drop(metav1.FinalizerOrphanDependents)
	o.drop(metav1.FinalizerDeleteDependents)
	switch policy {
	case orphan:
		o.finalizers = append(o.finalizers, metav1.FinalizerOrphanDependents)
	case foreground:
		o.finalizers = append(o.finalizers, metav1.FinalizerDeleteDependents)
	}
	o.deleting = true
	m.leave(name)
}

// leave removes an object that is DELETING and that nothing holds.
func (m *model) leave(name string) {
	if o := m.objects[name]; o.deleting && len(o.finalizers) == 0 && !o.namespaced {
		delete(m.objects, name)
	}
}

// standing of an owner for a dependent; "solid" also for what is not resolved.
func (m *model) standing(dependent *modelObject, owner string) string {
	o, ns := m.objects[owner], keyOf(dependent.name).Namespace
	theirs := keyOf(owner).Namespace
	switch {
	case o == nil:
		return "dangling"
	case theirs == "" || theirs == ns:
		if o.deleting && o.has(metav1.FinalizerDeleteDependents) {
			return "waiting"
		}
		return "solid"
	case ns == "":
		return "solid"
	}
	return "dangling"
}

// settle does what the collector has to do, until there is nothing left.
func (m *model) settle() {
	for m.judgeAll() || m.emptyAll() || m.finalizeOne() {
	}
}

// judgeAll is the garbage processor.
func (m *model) judgeAll() (changed bool) {
	for _, name := range m.names() {
		o := m.objects[name]
		if o == nil || o.deleting || len(o.owners) == 0 {
			continue
		}
		var solid []modelRef
		waiting := false
		for _, r := range o.owners {
			switch m.standing(o, r.owner) {
			case "solid":
				solid = append(solid, r)
			case "waiting":
				waiting = true
			}
		}
		if len(solid) == len(o.owners) {
			continue
		}
		changed = true
		switch {
		case len(solid) > 0:
			o.owners = solid
		case o.has(metav1.FinalizerOrphanDependents):
			m.delete(name, orphan)
		case o.has(metav1.FinalizerDeleteDependents), waiting && len(m.dependents(name)) > 0:
			m.delete(name, foreground)
		default:
			m.delete(name, background)
		}
	}
	return changed
}

// emptyAll is the namespace controller: pods, then the rest, then itself.
func (m *model) emptyAll() (changed bool) {
	for _, name := range m.names() {
		ns := m.objects[name]
		if ns == nil || !ns.deleting || !ns.namespaced {
			continue
		}
		var pods, rest []string
		for _, other := range m.names() {
			switch key := keyOf(other); {
			case key.Namespace != keyOf(name).Name:
			case key.Kind == "pods":
				pods = append(pods, other)
			default:
				rest = append(rest, other)
			}
		}
		phase := pods
		if len(pods) == 0 {
			phase = rest
		}
		for _, other := range phase {
			if !m.objects[other].deleting {
				m.delete(other, background)
				changed = true
			}
		}
		if len(phase) == 0 {
			ns.namespaced, changed = false, true
			m.leave(name)
		}
	}
	return changed
}

// finalizeOne runs one of the collector's finalizers, if one can run.
func (m *model) finalizeOne() bool {
	for _, name := range m.names() {
		o := m.objects[name]
		switch {
		case !o.deleting:
		case o.has(metav1.FinalizerOrphanDependents):
			for _, d := range m.dependents(name) {
				d.owners = slices.DeleteFunc(d.owners, func(r modelRef) bool {
					return r.owner == name || m.standing(d, r.owner) == "dangling"
				})
			}
			o.drop(metav1.FinalizerOrphanDependents)
			m.leave(name)
			return true
		case o.has(metav1.FinalizerDeleteDependents) && (!m.blocked(name) || m.waitsForItself(name)):
			o.drop(metav1.FinalizerDeleteDependents)
			m.leave(name)
			return true
		}
	}
	return false
}

func (m *model) blockers(name string) []*modelObject {
	var out []*modelObject
	for _, d := range m.dependents(name) {
		unresolved := keyOf(name).Namespace != "" && keyOf(d.name).Namespace == ""
		for _, r := range d.owners {
			if r.owner == name && r.blocks && !unresolved {
				out = append(out, d)
				break
			}
		}
	}
	return out
}

func (m *model) blocked(name string) bool { return len(m.blockers(name)) > 0 }

// waitsForItself follows those that wait in the foreground.
func (m *model) waitsForItself(name string) bool {
	seen := map[string]bool{}
	for queue := []string{name}; len(queue) > 0; {
		next := queue[0]
		queue = queue[1:]
		for _, d := range m.blockers(next) {
			if !d.deleting || !d.has(metav1.FinalizerDeleteDependents) || seen[d.name] {
				continue
			}
			seen[d.name] = true
			queue = append(queue, d.name)
		}
	}
	return seen[name]
}

// state is what world.state shows, but for dangling references of what is on
// its way out: those are left where they are, and which ones are left depends
// on whether their owners went one after the other or together.
func (m *model) state() string {
	var parts []string
	for _, name := range m.names() {
		o := m.objects[name]
		text := name
		if o.deleting {
			text += "!"
		}
		if len(o.finalizers) > 0 {
			text += "(" + strings.Join(o.finalizers, ",") + ")"
		}
		var owners []string
		for _, r := range o.owners {
			if !o.deleting || m.objects[r.owner] != nil {
				owners = append(owners, r.owner)
			}
		}
		if len(owners) > 0 {
			text += "<" + strings.Join(owners, ",")
		}
		parts = append(parts, text)
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}
