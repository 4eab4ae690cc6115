package gc

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/store"
)

// Reference is the owner in an ownerReference, without the uid. It has no version:
// all versions of a kind are the same objects.
type Reference struct{ Group, Kind, Name string }

// ReferenceOf converts an ownerReference. An invalid apiVersion gives a group that
// no kind has.
func ReferenceOf(r *metav1.OwnerReference) Reference {
	group, _, found := strings.Cut(r.APIVersion, "/")
	if !found {
		group = "" // "v1": the core group
	}
	return Reference{Group: group, Kind: r.Kind, Name: r.Name}
}

// Named is what the served kinds say about a reference.
type Named struct {
	Served     bool // the kind is served, and its objects are in the database
	Namespaced bool // they live in namespaces
	Same       bool // the owner has the kind and the name in the reference
}

// Identify compares a reference with the object that has its uid.
//
// An object outlives its definition while its namespace is terminating, or after
// a crash. The kind names are unknown then, so Identify compares the group and
// the object's name.
func Identify(kinds *kind.Snapshot, r Reference, o Owner) Named {
	k, served := kinds.OfGroupKind(schema.GroupKind{Group: r.Group, Kind: r.Kind})
	if served && (k.Ephemeral || k.Source != nil) {
		return Named{} // objects of this kind are not in the database
	}
	if served {
		return Named{Served: true, Namespaced: k.Namespaced, Same: o.Exists && k.Storage == o.Kind && r.Name == o.Name}
	}
	if !o.Exists || r.Name != o.Name {
		return Named{}
	}
	_, stored := kinds.Stored(o.Kind)
	return Named{Same: !stored && groupOf(o.Kind) == r.Group}
}

// groupOf returns the group in a storage name: "apps" of "deployments.apps".
func groupOf(storage string) string {
	_, group, _ := strings.Cut(storage, ".")
	return group
}

// unlink removes references to owners that go, by their index, and remembers them for a
// restore of the owners.
func (s *session) unlink(o *item, m *metav1.ObjectMeta, drop []int) error {
	if err := s.tx.RememberDropped(o, m.OwnerReferences, drop); err != nil {
		return err
	}
	unlink(m, drop)
	return s.rewrite(o, m)
}

// unlink removes references, by their index, and the entries of managedFields for owners that
// no reference names any more: a manager does not own a field that the collector removed.
func unlink(m *metav1.ObjectMeta, drop []int) {
	var left []metav1.OwnerReference
	for i, r := range m.OwnerReferences {
		if !slices.Contains(drop, i) {
			left = append(left, r)
		}
	}
	removed := fieldpath.NewSet()
	for _, i := range drop {
		uid := m.OwnerReferences[i].UID
		if !slices.ContainsFunc(left, func(r metav1.OwnerReference) bool { return r.UID == uid }) {
			removed.Insert(fieldpath.MakePathOrDie("metadata", "ownerReferences", fieldpath.KeyByFields("uid", string(uid))))
		}
	}
	m.OwnerReferences = left
	if len(m.OwnerReferences) == 0 {
		removed.Insert(fieldpath.MakePathOrDie("metadata", "ownerReferences"))
	}
	var kept []metav1.ManagedFieldsEntry
	for _, e := range m.ManagedFields {
		if disown(&e, removed) {
			kept = append(kept, e)
		}
	}
	m.ManagedFields = kept
}

var ownerReferencesField = []byte(`"f:ownerReferences"`)

// disown removes fields from an entry. It returns false if the entry has no field left. An
// entry that cannot be read stays as it is.
func disown(e *metav1.ManagedFieldsEntry, removed *fieldpath.Set) bool {
	if e.FieldsV1 == nil || !bytes.Contains(e.FieldsV1.GetRawBytes(), ownerReferencesField) {
		return true
	}
	owned := &fieldpath.Set{}
	if err := owned.FromJSON(e.FieldsV1.GetRawReader()); err != nil {
		return true
	}
	left := owned.RecursiveDifference(removed)
	if left.Empty() {
		return false
	}
	text, err := left.ToJSON()
	if err != nil {
		return true
	}
	e.FieldsV1 = metav1.NewFieldsV1(string(text))
	return true
}

// orphan is the orphan finalizer: it removes the owner, and dangling owners, from
// the references of the dependents, and then the finalizer from the owner. A
// controller that has not yet seen the deletion would adopt the dependents again.
// So if the kind has status.observedGeneration, orphan waits for the controller,
// at most Options.OrphanWait.
func (s *session) orphan(ctx context.Context, o *item) (review.Verdict, error) {
	if wait := s.unseen(o); wait > 0 {
		return review.Again(wait), nil
	}
	v, err := s.collect(ctx, string(o.UID), s.allDependents, func(ctx context.Context, batch []*item) error {
		return s.dropOwner(ctx, o.UID, batch)
	})
	if err != nil || s.budget <= 0 {
		return v, err
	}
	return s.removeFinalizer(ctx, o.UID, metav1.FinalizerOrphanDependents)
}

// unseen returns how much longer to wait for the owner's controller.
func (s *session) unseen(o *item) time.Duration {
	if _, _, behind := Unseen(s.kinds, o.Kind, o.Body); !behind {
		return 0
	}
	return OrphanDeadline(o.Deletion, s.c.opts.OrphanWait).Sub(s.now)
}

// Unseen returns the generation of an object that its controller has seen, the
// current generation, and whether the controller is behind. If the kind's schema
// has status.observedGeneration and the object does not, the controller has seen
// generation 0. Kinds without the field are never behind.
func Unseen(kinds *kind.Snapshot, storage string, body []byte) (seen, want int64, behind bool) {
	found := gjson.GetBytes(body, "status.observedGeneration")
	if !found.Exists() {
		if k, ok := kinds.Stored(storage); !ok || !k.ReportsGeneration() {
			return 0, 0, false
		}
	}
	seen, want = found.Int(), gjson.GetBytes(body, "metadata.generation").Int()
	return seen, want, seen < want
}

// OrphanDeadline returns when orphaning stops waiting for the controller of an
// object. The deletion is in Unix seconds.
func OrphanDeadline(deletion int64, wait time.Duration) time.Time {
	return time.Unix(deletion, 0).Add(wait)
}

// dropOwner removes the owner, and dangling owners, from the references of its
// dependents.
func (s *session) dropOwner(ctx context.Context, owner types.UID, batch []*item) error {
	metas := make([]metav1.ObjectMeta, len(batch))
	for i, o := range batch {
		var err error
		if metas[i], err = object.ParseMeta(o.Body); err != nil {
			return err
		}
	}
	if err := s.lookUp(ctx, metas); err != nil {
		return err
	}
	for i, o := range batch {
		var drop []int
		for at, r := range metas[i].OwnerReferences {
			if standing, _ := s.standing(o, &r); r.UID == owner || standing == Dangling {
				drop = append(drop, at)
			}
		}
		if err := s.unlink(o, &metas[i], drop); err != nil {
			return err
		}
	}
	return s.tx.Flush()
}

// foreground is the foreground finalizer: it deletes the dependents, and removes
// the finalizer from the owner when no blocking dependent is left. known is what was
// read together with the owner; nil means nothing.
func (s *session) foreground(ctx context.Context, o *item, known *store.Family) (review.Verdict, error) {
	if err := s.noteGrace(o); err != nil {
		return review.Verdict{}, err
	}
	before, blocked := s.budget, false
	v, err := s.collect(ctx, string(o.UID), s.dependents(known), func(ctx context.Context, batch []*item) (err error) {
		if err = s.judge(ctx, batch); err == nil && !blocked {
			blocked, err = s.blockedBy(batch, o)
		}
		return err
	})
	if err != nil || blocked || s.budget <= 0 {
		return v, err
	}
	if known != nil && s.budget == before {
		blocked, err = s.waits(ctx, o, known.Blocked, known.Circle)
	} else {
		blocked, err = s.isBlocked(ctx, o)
	}
	if err != nil || blocked {
		return v, err // a trigger enqueues it when a dependent is removed
	}
	if s.budget == before {
		return s.dropFinalizer(ctx, o, metav1.FinalizerDeleteDependents)
	}
	return s.removeFinalizer(ctx, o.UID, metav1.FinalizerDeleteDependents)
}

// removeFinalizer removes a finalizer, and with the last one the object. It reads
// the object again: an object that is its own dependent has changed meanwhile.
func (s *session) removeFinalizer(ctx context.Context, uid types.UID, finalizer string) (review.Verdict, error) {
	o, err := s.tx.GetByUID(ctx, uid)
	if err != nil {
		return review.Verdict{}, err
	}
	if o == nil {
		return review.Acted(), nil
	}
	return s.dropFinalizer(ctx, o, finalizer)
}

// dropFinalizer is removeFinalizer for an object as it is now.
func (s *session) dropFinalizer(ctx context.Context, o *item, finalizer string) (review.Verdict, error) {
	m, err := object.ParseMeta(o.Body)
	if err != nil {
		return review.Verdict{}, err
	}
	m.Finalizers = slices.DeleteFunc(slices.Clone(m.Finalizers), func(f string) bool { return f == finalizer })
	return review.Acted(), s.updateDeleting(ctx, o, m)
}

// updateDeleting writes the new metadata of a DELETING object, or removes the
// object if nothing in the metadata holds it.
func (s *session) updateDeleting(ctx context.Context, o *item, m metav1.ObjectMeta) error {
	if lifecycle.RemoveNow(o.Body, m, s.kinds.Rules(o.Kind)) {
		if err := s.lookUp(ctx, []metav1.ObjectMeta{m}); err != nil {
			return err
		}
		s.remove(o, &m)
	} else if err := s.rewrite(o, &m); err != nil {
		return err
	}
	return s.tx.Flush()
}
