package store

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/sqldb"
)

// Dropped is an object that lacks a reference, to an owner that is gone.
type Dropped struct {
	Stored
	DroppedReference
	Others bool // it lacks other references too
}

// DroppedFor reads the references that wait for an owner, with their dependents.
// It leaves out dependents that are gone or DELETING.
func (t *Tx) DroppedFor(ctx context.Context, owner types.UID, limit int) (out []*Dropped, err error) {
	err = t.rows(ctx, func(row sqldb.Row) error {
		d := &Dropped{}
		if err := row.Scan(append([]any{(*string)(&d.Owner), &d.Reference, &d.Known, &d.Others}, d.fields()...)...); err != nil {
			return err
		}
		out = append(out, d)
		return t.Reader.finish(&d.Stored)
	}, droppedFor, string(owner), limit)
	return out, err
}

// AnyDroppedFor reports whether references wait for an owner.
func (r *Reader) AnyDroppedFor(ctx context.Context, owner types.UID) (bool, error) {
	return r.one(ctx, []any{new(int64)}, `SELECT 1 FROM dropped_references WHERE owner_uid = $1 LIMIT 1`, string(owner))
}

// Dropped reads the references that objects lack, by dependent, in the order of the owners' uids.
func (r *Reader) Dropped(ctx context.Context, dependents ...types.UID) (map[types.UID][]DroppedReference, error) {
	lacks := map[types.UID][]DroppedReference{}
	err := r.rows(ctx, func(row sqldb.Row) error {
		var dependent types.UID
		var d DroppedReference
		err := row.Scan((*string)(&dependent), (*string)(&d.Owner), &d.Reference, &d.Known)
		lacks[dependent] = append(lacks[dependent], d)
		return err
	}, droppedBy[r.engine], sqldb.List(r.engine, dependents))
	return lacks, err
}

var droppedBy = sqldb.WithLists(`
SELECT dependent_uid, owner_uid, reference, known FROM dropped_references WHERE dependent_uid IN LIST($1, text) ORDER BY dependent_uid, owner_uid`)

// AnyDropped reports which of some uids are named in a dropped reference, as its owner or
// as its dependent.
func (r *Reader) AnyDropped(ctx context.Context, uids []types.UID) (map[types.UID]bool, error) {
	found, err := sqldb.Column[types.UID](ctx, r, droppedUIDs[r.engine], sqldb.List(r.engine, uids))
	named := make(map[types.UID]bool, len(found))
	for _, uid := range found {
		named[uid] = true
	}
	return named, err
}

var droppedUIDs = sqldb.WithLists(`
SELECT owner_uid FROM dropped_references WHERE owner_uid IN LIST($1, text)
UNION SELECT dependent_uid FROM dropped_references WHERE dependent_uid IN LIST($1, text)`)

// SettleDropped deletes a reference.
func (t *Tx) SettleDropped(d *Dropped) {
	t.Defer(`DELETE FROM dropped_references WHERE owner_uid = $1 AND dependent_uid = $2`, string(d.Owner), string(d.UID))
}

// SetKnown replaces the known owners of a reference that an object lacks.
func (t *Tx) SetKnown(dependent types.UID, d DroppedReference) {
	t.Defer(`UPDATE dropped_references SET known = $3 WHERE owner_uid = $1 AND dependent_uid = $2`, string(d.Owner), string(dependent), d.Known)
}

// RememberDropped records references that an object is about to lose, because their owners
// go: a restore of an owner gives them back. before are all of its references, drop the
// indexes of those.
func (t *Tx) RememberDropped(o *Stored, before []metav1.OwnerReference, drop []int) error {
	if !t.writes.archive.on {
		return nil
	}
	known, err := KnownOwners(before)
	if err != nil {
		return err
	}
	for _, i := range drop {
		reference, err := json.Marshal(before[i])
		if err != nil {
			return fmt.Errorf("remember reference: %w", err)
		}
		t.Defer(rememberDropped, string(before[i].UID), string(o.UID), string(reference), known)
	}
	return nil
}

// KnownOwners encodes the owners of references as DroppedReference.Known has them.
func KnownOwners(references []metav1.OwnerReference) (string, error) {
	uids := make([]types.UID, len(references))
	for i, o := range references {
		uids[i] = o.UID
	}
	data, err := json.Marshal(uids)
	return string(data), err
}

const droppedFor = `
SELECT r.owner_uid, r.reference, r.known,
    EXISTS (SELECT 1 FROM dropped_references x WHERE x.dependent_uid = r.dependent_uid AND x.owner_uid <> r.owner_uid), ` + headColumns + `, c.body
FROM dropped_references r JOIN objects d ON d.uid = r.dependent_uid JOIN changes c ON c.revision = d.revision
WHERE r.owner_uid = $1 AND d.deletion_time IS NULL
ORDER BY r.dependent_uid LIMIT $2`
