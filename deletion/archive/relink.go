package archive

import (
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

// Restored owners have new uids, and may be restored after their dependents. An
// object that is restored while an owner does not exist loses the reference to
// it: otherwise the collector would delete it at once. The create stores the
// reference in dropped_references, in its transaction, and the transaction that
// restores the owner adds it again (relink). If both run at once, the second to
// commit fails and is retried: the create of the dependent with
// store.ErrOwnerIsBack, the create of the owner with store.ErrAwaited.
// docs/spec/archive.md has the interleavings.

// maxRelinks bounds the dependents that one transaction relinks. Further
// transactions relink the rest; after a crash between them, the same Restore, sent
// again, continues.
const maxRelinks = 500

// link updates the references to the uids that the owners have now, and returns
// the references that the object is restored without. before are those of its
// earlier life.
func (r *restoration) link(ctx context.Context, before []store.DroppedReference, m metav1.Object, result *v1.RestoreResult) ([]store.DroppedReference, error) {
	wanted, err := references(before, m.GetOwnerReferences())
	if err != nil {
		return nil, err
	}
	var kept []metav1.OwnerReference
	var dropped []store.DroppedReference
	for _, o := range wanted {
		now, lives, err := r.owner(ctx, o, m.GetNamespace())
		if err != nil {
			return nil, err
		}
		if now != "" {
			o.UID = now
			kept = append(kept, o)
			continue
		}
		reference, err := json.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("remember reference: %w", err)
		}
		dropped = append(dropped, store.DroppedReference{Owners: lives, Reference: string(reference)})
		result.Warnings = append(result.Warnings,
			fmt.Sprintf("the reference to its owner %s %s is left out: the owner does not exist; a restore of the owner adds it again", o.Kind, o.Name))
	}
	m.SetOwnerReferences(kept)
	known, err := knownOwners(kept)
	for i := range dropped {
		dropped[i].Known = known
	}
	return dropped, err
}

// references returns those of the archived object, and those that it was restored
// without, unless a client gave it an owner since.
func references(dropped []store.DroppedReference, archived []metav1.OwnerReference) ([]metav1.OwnerReference, error) {
	all := slices.Clone(archived)
	for _, d := range dropped {
		w, err := parse(&store.Dropped{DroppedReference: d})
		if err != nil {
			return nil, err
		}
		has := func(o metav1.OwnerReference) bool { return o.UID == w.reference.UID }
		if !w.edited(archived) && !slices.ContainsFunc(all, has) {
			all = append(all, w.reference)
		}
	}
	return all, nil
}

// knownOwners encodes the owners' uids as dropped_references stores them.
func knownOwners(references []metav1.OwnerReference) (string, error) {
	uids := make([]types.UID, len(references))
	for i, o := range references {
		uids[i] = o.UID
	}
	data, err := json.Marshal(uids)
	return string(data), err
}

// waiting is a live object and a reference that it was restored without.
type waiting struct {
	*store.Dropped
	reference metav1.OwnerReference
	known     []types.UID // owners that restores gave the object
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

// edited reports whether a client gave the object an owner after it was restored.
// From then on its references are the client's. Missing references do not count:
// the collector drops those of removed owners.
func (w *waiting) edited(references []metav1.OwnerReference) bool {
	return slices.ContainsFunc(references, func(o metav1.OwnerReference) bool { return !slices.Contains(w.known, o.UID) })
}

// relink adds the dropped references again to the objects that were restored
// before their owner, which had the uid was and has the uid now. It does so once
// per reference, and only for ACTIVE objects whose owners no client has changed.
// more says that it stopped at maxRelinks.
func (r *restoration) relink(ctx context.Context, tx *store.Tx, was, now types.UID, result *v1.RestoreResult) (more bool, err error) {
	owner, exists, err := tx.HeadByUID(ctx, now)
	if err != nil || !exists || !owns(owner) {
		return false, err // it was removed meanwhile: the references wait for its next restore
	}
	found, err := tx.DroppedFor(ctx, was, maxRelinks)
	if err != nil {
		return false, fmt.Errorf("read dropped references: %w", err)
	}
	for _, d := range found {
		if err := r.relinkOne(ctx, tx, d, owner.Key, now, result); err != nil {
			return false, fmt.Errorf("relink %s: %w", d.Key, err)
		}
	}
	return len(found) == maxRelinks, tx.Flush()
}

func (r *restoration) relinkOne(ctx context.Context, tx *store.Tx, d *store.Dropped, owner object.Key, now types.UID, result *v1.RestoreResult) error {
	w, err := parse(d)
	if err != nil {
		return err
	}
	m, err := object.ParseMeta(w.Body)
	if err != nil {
		return err
	}
	known := ""
	switch {
	case slices.ContainsFunc(m.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == now }):
	case w.edited(m.OwnerReferences):
		who := "a dependent"
		if r.client.May("get", w.Key) == nil {
			who = r.names.gvk(w.Kind).Kind + " " + w.Name
		}
		result.Warnings = append(result.Warnings, who+" was given other owners meanwhile and keeps those")
	case !r.names.refers(w.reference, owner, w.Namespace):
	default:
		w.reference.UID = now
		m.OwnerReferences = append(m.OwnerReferences, w.reference)
		body, err := object.WithMeta(w.Body, m)
		if err != nil {
			return err
		}
		if _, err := tx.Rewrite(&w.Stored, &m, body); err != nil {
			return err
		}
		if known, err = knownOwners(m.OwnerReferences); err != nil {
			return err
		}
		result.Relinked++
	}
	return tx.SettleDropped(ctx, d, known)
}

// relinkRest relinks the remaining dependents in further transactions.
func (r *restoration) relinkRest(ctx context.Context, was, now types.UID, result *v1.RestoreResult) error {
	if found, err := r.store.Reader().AnyDroppedFor(ctx, was); err != nil || !found {
		return err
	}
	for more := !r.spec.DryRun; more; {
		err := r.store.Transact(ctx, func(tx *store.Tx) (err error) {
			more, err = r.relink(ctx, tx, was, now, result)
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
