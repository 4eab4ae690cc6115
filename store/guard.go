package store

import (
	"bytes"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// The guard's part of a delete: which limit applies, and whether the object can
// have a cascade at all. The transaction of the delete looks both up, and looks
// for dependents only if a limit applies. An object without a cascade is deleted
// at once. The collector counts the cascade: see gc/guard.go.

// guardNeeds is what must be loaded to know the limit.
func (r *DeleteRequest) guardNeeds() []object.Key {
	if r.Key.Namespace == "" {
		return nil
	}
	return []object.Key{{Kind: object.Namespaces, Name: r.Key.Namespace}}
}

// guardParent is the object's uid if a limit applies to it and the answer depends
// on whether it has dependents. Otherwise empty.
func (r *DeleteRequest) guardParent(v *view) string {
	o := v.objects[r.Key]
	if o == nil || o.deleting || r.contains() || r.namespaceLimit(v) == 0 {
		return ""
	}
	return o.uid
}

// limit is the guard's limit for this delete; 0: none.
func (r *DeleteRequest) limit(v *view, o *state) int64 {
	if !r.Guarded || o.deleting || !r.contains() && !v.parents[o.uid] {
		return 0
	}
	return r.namespaceLimit(v)
}

// contains says that deleting an object of the kind deletes what it contains.
func (r *DeleteRequest) contains() bool {
	return r.Key.Kind == object.Namespaces || r.Key.Kind == object.Definitions
}

var maxCascade = []byte(lifecycle.MaxCascade)

// namespaceLimit is the limit of the object's Namespace; for a Namespace, its own.
func (r *DeleteRequest) namespaceLimit(v *view) int64 {
	key := r.Key
	if key.Namespace != "" {
		key = object.Key{Kind: object.Namespaces, Name: r.Key.Namespace}
	}
	ns := v.objects[key]
	if ns == nil || key.Kind != object.Namespaces || !bytes.Contains(ns.body, maxCascade) {
		return lifecycle.CascadeLimit(r.MaxCascade, nil)
	}
	m, err := object.ParseMeta(ns.body)
	if err != nil {
		return lifecycle.CascadeLimit(r.MaxCascade, nil) // a delete of the Namespace reports the error
	}
	return lifecycle.CascadeLimit(r.MaxCascade, m.Annotations)
}
