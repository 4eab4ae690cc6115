package store

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/sqldb"
)

// Dropped is an object that was restored without a reference.
type Dropped struct {
	Stored
	DroppedReference
}

// DroppedFor reads the references that wait for an owner, with their dependents.
// It leaves out dependents that are gone or DELETING.
func (t *Tx) DroppedFor(ctx context.Context, owner types.UID, limit int) (out []*Dropped, err error) {
	err = t.rows(ctx, func(row sqldb.Row) error {
		d := &Dropped{}
		if err := row.Scan(append([]any{&d.Reference, &d.Known}, d.fields()...)...); err != nil {
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

// DroppedBy reads the references that an object was restored without.
func (r *Reader) DroppedBy(ctx context.Context, dependent types.UID) (out []DroppedReference, err error) {
	err = r.rows(ctx, func(row sqldb.Row) error {
		var d DroppedReference
		err := row.Scan(&d.Reference, &d.Known)
		out = append(out, d)
		return err
	}, `SELECT reference, known FROM dropped_references WHERE dependent_uid = $1 ORDER BY owner_uid`, string(dependent))
	return out, err
}

// AnyDropped reports which of some uids are named in a dropped reference, as its owner or
// as its dependent.
func (r *Reader) AnyDropped(ctx context.Context, uids []types.UID) (map[types.UID]bool, error) {
	named := map[types.UID]bool{}
	err := r.rows(ctx, func(row sqldb.Row) error {
		var uid string
		err := row.Scan(&uid)
		named[types.UID(uid)] = true
		return err
	}, r.pick(droppedUIDsSQLite, droppedUIDsPostgres), sqldb.List(r.engine, uids))
	return named, err
}

const (
	droppedUIDsSQLite = `
SELECT j.value FROM json_each($1) j WHERE EXISTS (SELECT 1 FROM dropped_references d WHERE d.owner_uid = j.value)
    OR EXISTS (SELECT 1 FROM dropped_references d WHERE d.dependent_uid = j.value)`
	droppedUIDsPostgres = `
SELECT j.uid FROM unnest($1::text[]) AS j (uid) WHERE EXISTS (SELECT 1 FROM dropped_references d WHERE d.owner_uid = j.uid)
    OR EXISTS (SELECT 1 FROM dropped_references d WHERE d.dependent_uid = j.uid)`
)

// SettleDropped deletes a reference, for all uids that its owner had. If the
// object got the reference again, known are the owners that restores gave it, in
// JSON; otherwise empty.
func (t *Tx) SettleDropped(ctx context.Context, d *Dropped, known string) error {
	var b sqldb.Batch
	b.Exec(`DELETE FROM dropped_references WHERE dependent_uid = $1 AND reference = $2`, string(d.UID), d.Reference)
	if known != "" {
		b.Exec(`UPDATE dropped_references SET known = $2 WHERE dependent_uid = $1`, string(d.UID), known)
	}
	return t.send(ctx, &b)
}

const droppedFor = `
SELECT r.reference, r.known, ` + headColumns + `, c.body
FROM dropped_references r JOIN objects d ON d.uid = r.dependent_uid JOIN changes c ON c.revision = d.revision
WHERE r.owner_uid = $1 AND d.deletion_time IS NULL
ORDER BY r.dependent_uid LIMIT $2`
