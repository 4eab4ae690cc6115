package archive

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// An object whose owner goes loses the reference to it: the collector drops it from an
// object that stays, and a restore leaves it out if the owner does not exist, because the
// collector would delete the object at once. Both store the reference in
// dropped_references, in their transaction, and the transaction that restores the owner adds
// it again (relink). If a dependent and its owner are restored at once, the second to
// commit fails and is retried: the create of the dependent with store.ErrOwnerIsBack, the create of
// the owner with store.ErrAwaited. docs/spec/archive.md has the interleavings.

// maxRelinks bounds the dependents that one transaction relinks. Further
// transactions relink the rest; after a crash between them, the same Restore, sent
// again, continues.
const maxRelinks = 500

// link leaves out the references to owners that do not exist, and returns them. before are
// those that the object lacked already: they are added if their owner exists again.
func (r *restoration) link(ctx context.Context, before []store.DroppedReference, m metav1.Object, result *v1.RestoreResult) ([]store.DroppedReference, error) {
	archived := m.GetOwnerReferences()
	wanted, err := references(before, archived)
	if err != nil {
		return nil, err
	}
	known, err := store.KnownOwners(wanted)
	if err != nil {
		return nil, err
	}
	var kept []metav1.OwnerReference
	var dropped []store.DroppedReference
	for i, o := range wanted {
		found, err := r.exists(ctx, o, m.GetNamespace())
		if err != nil {
			return nil, err
		}
		if found {
			kept = append(kept, o)
			continue
		}
		reference, err := json.Marshal(wanted[i])
		if err != nil {
			return nil, fmt.Errorf("remember reference: %w", err)
		}
		dropped = append(dropped, store.DroppedReference{Owner: o.UID, Reference: string(reference), Known: known})
		if has(archived, o.UID) {
			result.Warnings = append(result.Warnings,
				fmt.Sprintf("the reference to its owner %s %s is left out: the owner does not exist; a restore of the owner adds it again", o.Kind, o.Name))
		}
	}
	m.SetOwnerReferences(kept)
	return dropped, nil
}

// whole is an archived body with the references that the object lacked: the object as it was
// when its deletion was asked for.
func whole(body []byte, dropped []store.DroppedReference) ([]byte, error) {
	if len(dropped) == 0 {
		return body, nil
	}
	m, err := object.ParseMeta(body)
	if err != nil {
		return nil, err
	}
	if m.OwnerReferences, err = references(dropped, m.OwnerReferences); err != nil {
		return nil, err
	}
	return object.WithMeta(body, m)
}

func has(references []metav1.OwnerReference, uid types.UID) bool {
	return slices.ContainsFunc(references, func(o metav1.OwnerReference) bool { return o.UID == uid })
}

// references returns those of the archived object, and those that it lacked, unless a
// client gave it an owner since.
func references(dropped []store.DroppedReference, archived []metav1.OwnerReference) ([]metav1.OwnerReference, error) {
	var lacked []*waiting
	for i := range dropped {
		w, err := parse(&store.Dropped{DroppedReference: dropped[i]})
		if err != nil {
			return nil, err
		}
		lacked = append(lacked, w)
	}
	// The last one that was dropped is added first: it knew the fewest others.
	slices.SortStableFunc(lacked, func(a, b *waiting) int { return cmp.Compare(len(a.known), len(b.known)) })
	all := slices.Clone(archived)
	for _, w := range lacked {
		if !w.edited(archived) && !has(all, w.reference.UID) {
			all = w.added(all)
		}
	}
	return all, nil
}

// waiting is a live object and a reference that it lacks.
type waiting struct {
	*store.Dropped
	reference metav1.OwnerReference
	known     []types.UID // the owners that the object had, in their order
}

func parse(d *store.Dropped) (*waiting, error) {
	w := &waiting{Dropped: d}
	if err := json.Unmarshal([]byte(d.Reference), &w.reference); err != nil {
		return nil, fmt.Errorf("read dropped reference: %w", err)
	}
	if err := json.Unmarshal([]byte(d.Known), &w.known); err != nil {
		return nil, fmt.Errorf("read dropped reference: %w", err)
	}
	return w, nil
}

// edited reports whether a client gave the object an owner after it lost the reference.
// From then on its references are the client's. Missing references do not count:
// the collector drops those of removed owners.
func (w *waiting) edited(references []metav1.OwnerReference) bool {
	return slices.ContainsFunc(references, func(o metav1.OwnerReference) bool { return !slices.Contains(w.known, o.UID) })
}

// added returns the references with the missing one, at its old place among the others.
func (w *waiting) added(to []metav1.OwnerReference) []metav1.OwnerReference {
	return insert(to, w.reference, w.known, func(o metav1.OwnerReference) types.UID { return o.UID })
}

// insert returns a list with one more element, before the first of those that come after it in the
// order of uids.
func insert[E any](to []E, e E, order []types.UID, uid func(E) types.UID) []E {
	place := slices.Index(order, uid(e))
	at := slices.IndexFunc(to, func(other E) bool { return slices.Index(order, uid(other)) > place })
	if place < 0 || at < 0 {
		at = len(to)
	}
	return slices.Insert(slices.Clone(to), at, e)
}

// relink adds the dropped references to an owner, which has just come back. It does so
// only for ACTIVE objects whose owners no client has changed. more says that it stopped at
// maxRelinks.
func (r *restoration) relink(ctx context.Context, tx *store.Tx, uid types.UID, result *v1.RestoreResult) (more bool, err error) {
	heads, err := tx.Heads(ctx, []types.UID{uid})
	owner, exists := heads[uid]
	if err != nil || !exists || !owns(owner) {
		return false, err // it was removed meanwhile: the references wait for its next restore
	}
	found, err := tx.DroppedFor(ctx, uid, maxRelinks)
	if err != nil {
		return false, fmt.Errorf("read dropped references: %w", err)
	}
	for _, d := range found {
		if err := r.relinkOne(ctx, tx, d, owner.Key, result); err != nil {
			return false, fmt.Errorf("relink %s: %w", d.Key, err)
		}
	}
	return len(found) == maxRelinks, tx.Flush()
}

func (r *restoration) relinkOne(ctx context.Context, tx *store.Tx, d *store.Dropped, owner object.Key, result *v1.RestoreResult) error {
	w, err := parse(d)
	if err != nil {
		return err
	}
	m, err := object.ParseMeta(w.Body)
	if err != nil {
		return err
	}
	tx.SettleDropped(d)
	switch {
	case has(m.OwnerReferences, w.reference.UID):
	case w.edited(m.OwnerReferences):
		who := "a dependent"
		if r.client.May("get", w.Key) == nil {
			who = r.names.gvk(w.Kind).Kind + " " + w.Name
		}
		result.Warnings = append(result.Warnings, who+" was given other owners meanwhile and keeps those")
	case !r.names.refers(w.reference, owner, w.Namespace):
	default:
		m.OwnerReferences = w.added(m.OwnerReferences)
		body, err := object.WithMeta(w.Body, m)
		if err != nil {
			return err
		}
		if _, err := tx.Rewrite(&w.Stored, &m, body); err != nil {
			return err
		}
		result.Relinked++
		return w.tellOthers(ctx, tx)
	}
	return nil
}

// tellOthers adds the owner to those that the other references of the object know, which it
// still lacks: it is not one that a client gave the object.
func (w *waiting) tellOthers(ctx context.Context, tx *store.Tx) error {
	if !w.Others {
		return nil
	}
	others, err := tx.Dropped(ctx, w.UID)
	if err != nil {
		return err
	}
	for _, d := range others[w.UID] {
		other, err := parse(&store.Dropped{DroppedReference: d})
		if err != nil {
			return err
		}
		if slices.Contains(other.known, w.reference.UID) {
			continue
		}
		known, err := json.Marshal(insert(other.known, w.reference.UID, w.known, func(uid types.UID) types.UID { return uid }))
		if err != nil {
			return err
		}
		d.Known = string(known)
		tx.SetKnown(w.UID, d)
	}
	return nil
}

// relinkRest relinks the remaining dependents in further transactions.
func (r *restoration) relinkRest(ctx context.Context, uid types.UID, result *v1.RestoreResult) error {
	if found, err := r.store.Reader().AnyDroppedFor(ctx, uid); err != nil || !found {
		return err
	}
	for more := !r.spec.DryRun; more; {
		err := r.store.Transact(ctx, func(tx *store.Tx) (err error) {
			more, err = r.relink(ctx, tx, uid, result)
			return err
		})
		if err != nil {
			return fmt.Errorf("relink: %w", err)
		}
	}
	return nil
}

// refers reports whether a reference of an object in a namespace names this owner.
// A reference to another kind, name or namespace is dangling for the collector.
func (n *names) refers(o metav1.OwnerReference, owner object.Key, namespace string) bool {
	gv, err := schema.ParseGroupVersion(o.APIVersion)
	gvk := n.gvk(owner.Kind)
	return err == nil && gv.Group == gvk.Group && o.Kind == gvk.Kind && o.Name == owner.Name &&
		(owner.Namespace == "" || owner.Namespace == namespace)
}
