package store

import (
	"bytes"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store/graph"
)

// owner is a row of owners.
type owner struct {
	uid, group, kind, name string
	blocking, controller   bool
}

// ownersOf turns references into rows. Two references to the same uid become one
// row, which blocks or controls if either does, with the names of the first that
// blocks; if none does, of the first.
func ownersOf(references []metav1.OwnerReference) []owner {
	var owners []owner
	for i := range references {
		r := &references[i]
		group, _, found := strings.Cut(r.APIVersion, "/")
		if !found {
			group = "" // "v1": the core group
		}
		o := owner{
			uid: string(r.UID), group: group, kind: r.Kind, name: r.Name,
			blocking:   r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion,
			controller: r.Controller != nil && *r.Controller,
		}
		at := slices.IndexFunc(owners, func(other owner) bool { return other.uid == o.uid })
		if at < 0 {
			owners = append(owners, o)
			continue
		}
		o.controller = o.controller || owners[at].controller
		if o.blocking && !owners[at].blocking {
			owners[at] = o
		}
		owners[at].controller = o.controller
	}
	return owners
}

var ownersField = []byte(`"ownerReferences"`)

// ownersChanged returns the new rows, and whether they differ from those of the
// stored body. Most objects have no owners before or after; for them the body is
// searched and not parsed.
func ownersChanged(before []byte, references []metav1.OwnerReference) ([]owner, bool, error) {
	if len(references) == 0 && !bytes.Contains(before, ownersField) {
		return nil, false, nil
	}
	old, err := object.ParseOwners(before)
	if err != nil {
		return nil, false, err
	}
	owners := ownersOf(references)
	return owners, !slices.Equal(owners, ownersOf(old)), nil
}

// What the collector must do before an object that is being deleted can be
// removed: bits of objects.finalizing.
const (
	FinalizeOrphan     = 1 // remove it from the owners of its dependents
	FinalizeForeground = 2 // delete its dependents first
	FinalizeNamespace  = 4 // empty the namespace
	FinalizeGrace      = 8 // delete its dependents, with its grace period

	// FinalizeConfirm: count its cascade before any other step.
	FinalizeConfirm = graph.FinalizeConfirm
)

// describe sets the deletion columns of the head from the metadata.
func (f *effect) describe(m *metav1.ObjectMeta) {
	f.deletionTime, f.graceSeconds, f.finalizing = nil, nil, 0
	if m.DeletionTimestamp != nil {
		f.deletionTime = m.DeletionTimestamp.Unix()
	}
	if m.DeletionGracePeriodSeconds != nil {
		f.graceSeconds = *m.DeletionGracePeriodSeconds
	}
	if f.key.Kind == object.Namespaces {
		f.finalizing |= FinalizeNamespace
	}
	for _, finalizer := range m.Finalizers {
		switch finalizer {
		case metav1.FinalizerOrphanDependents:
			f.finalizing |= FinalizeOrphan
		case metav1.FinalizerDeleteDependents:
			f.finalizing |= FinalizeForeground
		case lifecycle.ConfirmCascade:
			f.finalizing |= FinalizeConfirm
		case lifecycle.PropagateGrace:
			f.finalizing |= FinalizeGrace
		}
	}
}
