package gc

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// model is the garbage collection proposal in memory, as naive as can be. Objects go by the short names
// of world, which the scripts use once each.
//
// It says which steps the collector may take at a moment (steps), and not in
// which order: the proposal and Kubernetes leave that open, and where an object has
// several owners that go by different ways the order decides which of them
// waits for it (docs/spec/deletion.md). So what is tested is that each change
// of the collector is one of the steps, and that it rests only when there are
// none left.
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

// modelRef is a reference to the uid of an owner.
type modelRef struct {
	owner  string // one that never was begins with "never-"
	blocks bool
	as     misnaming
}

// misnaming is how a reference names its owner.
type misnaming string

const (
	rightly    misnaming = ""
	wrongName  misnaming = "~name"
	wrongKind  misnaming = "~kind"    // a namespaced kind that is served
	unknownOne misnaming = "~unknown" // a kind that is not served
)

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

// without is the object without a finalizer.
func (o *modelObject) without(finalizer string) *modelObject {
	next := *o
	next.finalizers = slices.DeleteFunc(slices.Clone(o.finalizers), func(f string) bool { return f == finalizer })
	return &next
}

// letGo is the object without some owners.
func (o *modelObject) letGo(drop func(modelRef) bool) *modelObject {
	next := *o
	next.owners = slices.DeleteFunc(slices.Clone(o.owners), drop)
	return &next
}

// String is "a!(orphan)<b,c^": a DELETING a with a finalizer, owned by b and c,
// and blocking c. A Namespace that we hold has a "#".
func (o *modelObject) String() string {
	if o == nil {
		return "gone"
	}
	text := o.name
	if o.deleting {
		text += "!"
	}
	if o.namespaced {
		text += "#"
	}
	if len(o.finalizers) > 0 {
		text += "(" + strings.Join(o.finalizers, ",") + ")"
	}
	separator := "<"
	for _, r := range o.owners {
		text += separator + r.owner + string(r.as)
		if r.blocks {
			text += "^"
		}
		separator = ","
	}
	return text
}

// delete is the deletion handler, for clients.
func (m *model) delete(name string, policy metav1.DeletionPropagation) {
	m.become(name, m.objects[name].deleted(policy))
}

// become sets the state of an object; nil removes it.
func (m *model) become(name string, o *modelObject) {
	if o == nil {
		delete(m.objects, name)
	} else {
		m.objects[name] = o
	}
}

// deleted returns the state of an object after a deletion.
func (o *modelObject) deleted(policy metav1.DeletionPropagation) *modelObject {
	next := o.without(metav1.FinalizerOrphanDependents).without(metav1.FinalizerDeleteDependents)
	switch policy {
	case orphan:
		next.finalizers = append(next.finalizers, metav1.FinalizerOrphanDependents)
	case foreground:
		next.finalizers = append(next.finalizers, metav1.FinalizerDeleteDependents)
	}
	next.deleting = true
	return next.orGone()
}

// orGone is nil for an object that is DELETING and that nothing holds.
func (o *modelObject) orGone() *modelObject {
	if o.deleting && len(o.finalizers) == 0 && !o.namespaced {
		return nil
	}
	return o
}

// standing of an owner for a dependent; "solid" also for what is not resolved and
// for what cannot be looked up.
func (m *model) standing(dependent *modelObject, r modelRef) string {
	o, ns := m.objects[r.owner], keyOf(dependent.name).Namespace
	theirs := keyOf(r.owner).Namespace
	never := strings.HasPrefix(r.owner, "never-")
	switch {
	case r.as == unknownOne && (o != nil || never):
		return "solid"
	case o == nil || r.as != rightly:
		if ns == "" && (r.as == wrongKind || theirs != "") {
			return "solid"
		}
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

// steps returns the states that the collector may give an object now, nil for its
// removal. Empty if the collector must not change it.
func (m *model) steps(name string) []*modelObject {
	o := m.objects[name]
	next := m.orphaned(o)
	if o.deleting {
		return append(next, m.finalized(o)...)
	}
	if m.emptied(o) {
		next = append(next, o.deleted(background))
	}
	return append(next, m.judged(o)...)
}

// judged is the garbage processor.
func (m *model) judged(o *modelObject) []*modelObject {
	solid, waiting := 0, false
	for _, r := range o.owners {
		switch m.standing(o, r) {
		case "solid":
			solid++
		case "waiting":
			waiting = true
		}
	}
	switch {
	case solid == len(o.owners):
		return nil
	case solid > 0:
		return []*modelObject{o.letGo(func(r modelRef) bool { return m.standing(o, r) != "solid" })}
	case o.has(metav1.FinalizerOrphanDependents):
		return []*modelObject{o.deleted(orphan)}
	case o.has(metav1.FinalizerDeleteDependents), waiting && len(m.dependents(o.name)) > 0:
		return []*modelObject{o.deleted(foreground)}
	}
	return []*modelObject{o.deleted(background)}
}

// emptied reports whether the namespace controller deletes the object: its
// namespace is going, and it is a pod or there are no pods any more.
func (m *model) emptied(o *modelObject) bool {
	key := keyOf(o.name)
	ns := m.objects["namespaces:/"+key.Namespace]
	return key.Namespace != "" && ns != nil && ns.deleting && ns.namespaced && (key.Kind == "pods" || !m.hasContent(key.Namespace, "pods"))
}

// hasContent reports whether objects of a kind, or of any, are in a namespace.
func (m *model) hasContent(namespace, kind string) bool {
	for name := range m.objects {
		if key := keyOf(name); key.Namespace == namespace && (kind == "" || key.Kind == kind) {
			return true
		}
	}
	return false
}

// orphaned returns the object after the orphan finalizers of its owners.
func (m *model) orphaned(o *modelObject) []*modelObject {
	var next []*modelObject
	for _, r := range o.owners {
		if owner := m.objects[r.owner]; owner != nil && owner.deleting && owner.has(metav1.FinalizerOrphanDependents) {
			next = append(next, o.letGo(func(other modelRef) bool { return other.owner == r.owner || m.standing(o, other) == "dangling" }))
		}
	}
	return next
}

// finalized returns the object without those of our finalizers that are done.
func (m *model) finalized(o *modelObject) []*modelObject {
	var next []*modelObject
	switch {
	case o.has(metav1.FinalizerOrphanDependents):
		if len(m.dependents(o.name)) == 0 {
			next = append(next, o.without(metav1.FinalizerOrphanDependents).orGone())
		}
	case o.has(metav1.FinalizerDeleteDependents):
		if !m.dependentsLeft(o.name) && (!m.blocked(o.name) || m.waitsForItself(o.name)) {
			next = append(next, o.without(metav1.FinalizerDeleteDependents).orGone())
		}
	}
	if o.namespaced && !m.hasContent(keyOf(o.name).Name, "") {
		empty := *o
		empty.namespaced = false
		next = append(next, empty.orGone())
	}
	return next
}

// dependentsLeft reports whether an owner in foreground deletion has dependents
// that have not been judged yet.
func (m *model) dependentsLeft(name string) bool {
	return slices.ContainsFunc(m.dependents(name), func(d *modelObject) bool { return !d.deleting && len(m.judged(d)) > 0 })
}

func (m *model) blockers(name string) []*modelObject {
	var out []*modelObject
	for _, d := range m.dependents(name) {
		foreign := keyOf(name).Namespace != "" && keyOf(d.name).Namespace != keyOf(name).Namespace
		for _, r := range d.owners { // of several with one uid the first that blocks counts
			if r.owner == name && r.blocks {
				if r.as == rightly && !foreign {
					out = append(out, d)
				}
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

// state is the whole model.
func (m *model) state() string {
	var parts []string
	for _, name := range m.names() {
		parts = append(parts, m.objects[name].String())
	}
	return strings.Join(parts, " ")
}
