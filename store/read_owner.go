package store

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
)

// Dependents reads the dependents of an owner that are not DELETING, in the order
// of their ids, behind an id.
func (r *Reader) Dependents(ctx context.Context, owner types.UID, after int64, limit int) ([]*Stored, error) {
	return r.query(ctx, r.pick(dependentsSQLite, dependentsPostgres), string(owner), after, limit)
}

// AllDependents is Dependents with the DELETING ones.
func (r *Reader) AllDependents(ctx context.Context, owner types.UID, after int64, limit int) ([]*Stored, error) {
	return r.query(ctx, r.pick(allDependentsSQLite, allDependentsPostgres), string(owner), after, limit)
}

// NewestDependents reads the last dependents that were created and are not
// DELETING.
func (r *Reader) NewestDependents(ctx context.Context, owner types.UID, limit int) ([]*Stored, error) {
	return r.query(ctx, newestDependents, string(owner), limit)
}

// BlockingDependents reads dependents that block the owner's deletion, DELETING ones
// first.
func (r *Reader) BlockingDependents(ctx context.Context, owner Named, limit int) ([]*Stored, error) {
	return r.query(ctx, blockingDependents, append(owner.args(), limit)...)
}

// On PostgreSQL the statements that read page by page fix the order in which the
// tables are read: index, head, body. Without it the planner may use statistics of
// empty tables and read all objects for each page, which makes a cascade
// quadratic.
const (
	ownedColumns = headColumns + `, c.body
FROM owners w JOIN objects d ON d.id = w.dependent JOIN changes c ON c.revision = d.revision`
	ownedPostgres = `d.id, d.uid, d.kind, d.namespace, d.name, d.revision, coalesce(d.deletion_time, 0), d.finalizing, coalesce(d.own_cascade, ''), d.parent, c.body
FROM (SELECT dependent FROM owners WHERE owner_uid = $1 AND dependent > $2 ORDER BY dependent) AS w
CROSS JOIN LATERAL (SELECT d.*, ` + isOwner + ` AS parent FROM objects d WHERE d.id = w.dependent`
	bodyPostgres = `
CROSS JOIN LATERAL (SELECT body FROM changes WHERE revision = d.revision OFFSET 0) AS c`

	dependentsSQLite = `
SELECT ` + ownedColumns + `
WHERE w.owner_uid = $1 AND w.dependent > $2 AND d.deletion_time IS NULL ORDER BY w.dependent LIMIT $3`
	dependentsPostgres = `
SELECT ` + ownedPostgres + ` AND d.deletion_time IS NULL OFFSET 0) AS d` + bodyPostgres + `
ORDER BY w.dependent LIMIT $3`

	allDependentsSQLite = `
SELECT ` + ownedColumns + `
WHERE w.owner_uid = $1 AND w.dependent > $2 ORDER BY w.dependent LIMIT $3`
	allDependentsPostgres = `
SELECT ` + ownedPostgres + ` OFFSET 0) AS d` + bodyPostgres + `
ORDER BY w.dependent LIMIT $3`

	newestDependents = `
SELECT ` + ownedColumns + `
WHERE w.owner_uid = $1 AND d.deletion_time IS NULL ORDER BY w.dependent DESC LIMIT $2`
	blockingDependents = `
SELECT ` + ownedColumns + isBlocking + ` ORDER BY d.deletion_time IS NULL, w.dependent LIMIT $6`
)

// Dependent is an object with its reference to one owner.
type Dependent struct {
	Stored
	Owner    types.UID
	Blocking bool      // the reference blocks, and has the name of the object with that uid, which is in no other namespace
	As       GroupKind // of the owner, as the reference names it
}

// DependentsOf reads dependents of some owners, in the order of owner and id, at
// most limit. The walk continues with an owner of many by DependentsAfter.
func (r *Reader) DependentsOf(ctx context.Context, owners []types.UID, limit int) ([]*Dependent, error) {
	return r.dependents(ctx, r.pick(dependentsOfSQLite, dependentsOfPostgres), sqldb.List(r.engine, owners), limit)
}

// DependentsAfter reads dependents of one owner behind an id. Each page begins in
// the index where the last one ended, so it reads 100,000 dependents once.
func (r *Reader) DependentsAfter(ctx context.Context, owner types.UID, after int64, limit int) ([]*Dependent, error) {
	return r.dependents(ctx, dependentsAfter, string(owner), after, limit)
}

func (r *Reader) dependents(ctx context.Context, statement string, args ...any) ([]*Dependent, error) {
	var out []*Dependent
	err := r.rows(ctx, func(row sqldb.Row) error {
		d := &Dependent{}
		if err := row.Scan(append([]any{(*string)(&d.Owner), &d.Blocking, &d.As.Group, &d.As.Kind}, d.fields()...)...); err != nil {
			return err
		}
		out = append(out, d)
		return r.finish(&d.Stored)
	}, statement, args...)
	return out, err
}

const (
	referenceColumns = `w.owner_uid,
    w.blocking AND EXISTS (SELECT 1 FROM objects o WHERE o.uid = w.owner_uid AND o.name = w.owner_name AND (o.namespace = '' OR o.namespace = d.namespace)),
    w.owner_group, w.owner_kind, ` + headColumns + `, c.body`
	dependentsOfSQLite = `
SELECT ` + referenceColumns + `
FROM json_each($1) f JOIN owners w ON w.owner_uid = f.value
    JOIN objects d ON d.id = w.dependent JOIN changes c ON c.revision = d.revision
ORDER BY w.owner_uid, w.dependent LIMIT $2`
	dependentsOfPostgres = `
SELECT ` + referenceColumns + `
FROM unnest($1::text[]) AS f (uid) JOIN owners w ON w.owner_uid = f.uid
    JOIN objects d ON d.id = w.dependent JOIN changes c ON c.revision = d.revision
ORDER BY w.owner_uid, w.dependent LIMIT $2`
	dependentsAfter = `
SELECT ` + referenceColumns + `
FROM owners w JOIN objects d ON d.id = w.dependent JOIN changes c ON c.revision = d.revision
WHERE w.owner_uid = $1 AND w.dependent > $2 ORDER BY w.dependent LIMIT $3`
)

// CountDependents counts the references to an owner, up to a bound.
func (r *Reader) CountDependents(ctx context.Context, owner types.UID, most int64) (int64, error) {
	return r.count(ctx, `SELECT count(*) FROM (SELECT 1 FROM owners WHERE owner_uid = $1 LIMIT $2) AS found`, string(owner), most)
}

// CountBlocking counts the dependents that block the deletion of an owner.
func (r *Reader) CountBlocking(ctx context.Context, owner Named) (int64, error) {
	return r.count(ctx, `SELECT count(*)`+blocking, owner.args()...)
}

// GroupKind is a kind as references name it.
type GroupKind struct{ Group, Kind string }

// KindsNamed reads the kinds that the references to a uid name, by the index on
// owners.
func (r *Reader) KindsNamed(ctx context.Context, owner types.UID) (out []GroupKind, err error) {
	err = r.rows(ctx, func(row sqldb.Row) error {
		var k GroupKind
		err := row.Scan(&k.Group, &k.Kind)
		out = append(out, k)
		return err
	}, `SELECT DISTINCT owner_group, owner_kind FROM owners WHERE owner_uid = $1`, string(owner))
	return out, err
}

// Named is an owner as the references that resolve to it name it: an empty kind
// is any kind of the group.
type Named struct {
	object.Key
	UID types.UID
	As  GroupKind
}

func (n *Named) args() []any {
	return []any{string(n.UID), n.Namespace, n.Name, n.As.Group, n.As.Kind}
}

// A dependent blocks its owner's deletion if its reference names the owner's kind,
// name and uid, and a namespaced owner is in its namespace: others are no owners for
// the collector.
const (
	blocking = `
FROM owners w JOIN objects d ON d.id = w.dependent` + isBlocking
	isBlocking = `
WHERE w.owner_uid = $1 AND w.blocking AND ($2 = '' OR d.namespace = $2)
    AND w.owner_name = $3 AND w.owner_group = $4 AND ($5 = '' OR w.owner_kind = $5)`
)

// Blocked reports whether a dependent blocks the deletion of an owner; it stops at the first.
// circle reports that the owner may be its own dependent, through blocking dependents that
// are in foreground deletion too: the references are followed by uid, whatever else they name.
func (r *Reader) Blocked(ctx context.Context, owner Named) (blocked, circle bool, err error) {
	var b sqldb.Batch
	queueBlocked(&b, owner, &blocked, &circle)
	if err := r.send(ctx, &b); err != nil {
		return false, false, fmt.Errorf("read objects: %w", err)
	}
	return blocked, circle, nil
}

func queueBlocked(b *sqldb.Batch, owner Named, blocked, circle *bool) {
	yes := func(found *bool) func(sqldb.Row) error {
		return func(row sqldb.Row) error {
			*found = true
			return row.Scan(new(int64))
		}
	}
	b.Query(yes(blocked), `SELECT 1`+blocking+` LIMIT 1`, owner.args()...)
	b.Query(yes(circle), foregroundCircle, string(owner.UID))
}

// Family is an owner as a review needs it: itself, its own owners that exist, the first of its
// dependents that are not DELETING, and what Blocked answers.
type Family struct {
	Owner           *Stored // nil: it does not exist
	Above           map[types.UID]Head
	Dependents      []*Stored
	Blocked, Circle bool
}

// Family reads an owner by its uid, and at most limit dependents, in one round trip.
func (r *Reader) Family(ctx context.Context, owner Named, limit int) (f Family, err error) {
	var b sqldb.Batch
	var found []*Stored
	f.Above = map[types.UID]Head{}
	b.Query(r.scan(&found), storedByUID, string(owner.UID))
	b.Query(scanHead(f.Above), headsAbove, string(owner.UID))
	b.Query(r.scan(&f.Dependents), r.pick(dependentsSQLite, dependentsPostgres), string(owner.UID), int64(0), limit)
	queueBlocked(&b, owner, &f.Blocked, &f.Circle)
	if err := r.send(ctx, &b); err != nil {
		return Family{}, fmt.Errorf("read objects: %w", err)
	}
	f.Owner, err = first(found, nil)
	return f, err
}

const headsAbove = `
SELECT o.uid, o.kind, o.namespace, o.name, coalesce(o.deletion_time, 0), o.finalizing
FROM objects d JOIN owners w ON w.dependent = d.id JOIN objects o ON o.uid = w.owner_uid WHERE d.uid = $1`

// 2 is FinalizeForeground.
const (
	foregroundCircle = `
WITH RECURSIVE below (uid) AS (
    SELECT d.uid FROM owners w JOIN objects d ON d.id = w.dependent WHERE w.owner_uid = $1` + inForeground + `
    UNION
    SELECT d.uid FROM below b JOIN owners w ON w.owner_uid = b.uid JOIN objects d ON d.id = w.dependent WHERE TRUE` + inForeground + `
)
SELECT 1 FROM below WHERE uid = $1 LIMIT 1`
	inForeground = ` AND w.blocking AND d.deletion_time IS NOT NULL AND d.finalizing & 2 <> 0`
)

// ForegroundBlockers reads the dependents in foreground deletion that block one of
// some owners.
func (r *Reader) ForegroundBlockers(ctx context.Context, owners []Named) (out []Head, err error) {
	var b sqldb.Batch
	for i := range owners {
		b.Query(func(row sqldb.Row) error {
			var h Head
			err := row.Scan((*string)(&h.UID), &h.Kind, &h.Namespace, &h.Name, &h.Deletion, &h.Finalizing)
			out = append(out, h)
			return err
		}, foregroundBlockers, owners[i].args()...)
	}
	err = r.send(ctx, &b)
	return out, err
}

// 2 is FinalizeForeground.
const foregroundBlockers = `SELECT d.uid, d.kind, d.namespace, d.name, d.deletion_time, d.finalizing` + blocking + `
    AND d.deletion_time IS NOT NULL AND d.finalizing & 2 <> 0`

// Reference is a row of owners, with the head of its dependent and that of the
// object with the owner's uid, if it exists (Found).
type Reference struct {
	Dependent       Head
	ID              int64 // of the dependent
	UID             types.UID
	As              GroupKind
	Name            string
	Owner           Head
	Found           bool
	Removed, Inside bool // OwnersOf only: the archive has the owner; it was in a namespace
}

// ScanReferences reads a page of all references, behind a dependent's id and an
// owner's uid. It uses the primary key, then one read of each of the two objects.
func (r *Reader) ScanReferences(ctx context.Context, id int64, uid types.UID, limit int) (out []Reference, err error) {
	err = r.rows(ctx, func(row sqldb.Row) error {
		var f Reference
		err := row.Scan(&f.ID, (*string)(&f.UID), &f.As.Group, &f.As.Kind, &f.Name,
			(*string)(&f.Dependent.UID), &f.Dependent.Namespace, &f.Dependent.Deletion,
			&f.Found, &f.Owner.Kind, &f.Owner.Namespace, &f.Owner.Name, &f.Owner.Deletion, &f.Owner.Finalizing)
		out = append(out, f)
		return err
	}, scanReferences, id, string(uid), limit)
	return out, err
}

// OwnersOf reads the references of one dependent.
func (r *Reader) OwnersOf(ctx context.Context, id int64) (out []Reference, err error) {
	err = r.rows(ctx, func(row sqldb.Row) error {
		f := Reference{ID: id}
		err := row.Scan((*string)(&f.UID), &f.As.Group, &f.As.Kind, &f.Name,
			&f.Found, &f.Owner.Kind, &f.Owner.Namespace, &f.Owner.Name, &f.Owner.Deletion, &f.Owner.Finalizing, &f.Removed, &f.Inside)
		out = append(out, f)
		return err
	}, referencesOf, id)
	return out, err
}

const (
	ownerColumns = `o.uid IS NOT NULL, coalesce(o.kind, ''), coalesce(o.namespace, ''), coalesce(o.name, ''),
    coalesce(o.deletion_time, 0), coalesce(o.finalizing, 0)`
	scanReferences = `
SELECT w.dependent, w.owner_uid, w.owner_group, w.owner_kind, w.owner_name, d.uid, d.namespace, coalesce(d.deletion_time, 0),
    ` + ownerColumns + `
FROM (SELECT * FROM owners WHERE (dependent, owner_uid) > ($1, $2) ORDER BY dependent, owner_uid LIMIT $3) AS w
    JOIN objects d ON d.id = w.dependent LEFT JOIN objects o ON o.uid = w.owner_uid
ORDER BY w.dependent, w.owner_uid`
	referencesOf = `
SELECT y.owner_uid, y.owner_group, y.owner_kind, y.owner_name, ` + ownerColumns + `,
    EXISTS (SELECT 1 FROM archive a WHERE a.uid = y.owner_uid),
    EXISTS (SELECT 1 FROM archive a WHERE a.uid = y.owner_uid AND a.namespace <> '')
FROM owners y LEFT JOIN objects o ON o.uid = y.owner_uid WHERE y.dependent = $1`
)

// Finalizing reads a page of the objects that wait for the collector, behind a
// uid, by objects_finalizing_idx.
func (r *Reader) Finalizing(ctx context.Context, after types.UID, limit int) (out []types.UID, err error) {
	err = r.rows(ctx, func(row sqldb.Row) error {
		var uid types.UID
		err := row.Scan((*string)(&uid))
		out = append(out, uid)
		return err
	}, `SELECT uid FROM objects WHERE deletion_time IS NOT NULL AND finalizing <> 0 AND uid > $1 ORDER BY uid LIMIT $2`, string(after), limit)
	return out, err
}

// Member is the head of an object that may leave with others.
type Member struct {
	ID, Finalizing  int64
	UID             types.UID
	Kind, Namespace string
	Parent          bool  // has dependents
	Owners          int64 // how many; MembersBelow only
}

// MembersBelow reads, for each owner, a page of its dependents that are not
// DELETING, behind an id. It reads heads and indexes, and no bodies.
func (r *Reader) MembersBelow(ctx context.Context, owners []types.UID, after []int64, limit int64) ([][]Member, error) {
	pages := make([][]Member, len(owners))
	var b sqldb.Batch
	for i, owner := range owners {
		b.Query(scanMember(&pages[i]), membersBelow, string(owner), after[i], limit)
	}
	return pages, r.send(ctx, &b)
}

// MembersIn reads objects of a kind in a namespace that are not DELETING.
func (r *Reader) MembersIn(ctx context.Context, kind, namespace string, limit int64) (out []Member, err error) {
	err = r.rows(ctx, scanMember(&out), membersIn, kind, namespace, limit)
	return out, err
}

// MembersOf reads objects of a kind, in all namespaces, that are not DELETING.
func (r *Reader) MembersOf(ctx context.Context, kind string, limit int64) (out []Member, err error) {
	err = r.rows(ctx, scanMember(&out), membersOf, kind, limit)
	return out, err
}

func scanMember(into *[]Member) func(sqldb.Row) error {
	return func(row sqldb.Row) error {
		var m Member
		err := row.Scan(&m.ID, (*string)(&m.UID), &m.Kind, &m.Namespace, &m.Finalizing, &m.Parent, &m.Owners)
		*into = append(*into, m)
		return err
	}
}

const (
	memberColumns = `d.id, d.uid, d.kind, d.namespace, d.finalizing, ` + isOwner
	membersBelow  = `
SELECT ` + memberColumns + `, (SELECT count(*) FROM owners y WHERE y.dependent = d.id)
FROM owners w JOIN objects d ON d.id = w.dependent
WHERE w.owner_uid = $1 AND w.dependent > $2 AND d.deletion_time IS NULL ORDER BY w.dependent LIMIT $3`
	membersIn = `
SELECT ` + memberColumns + `, 0 FROM objects d WHERE d.kind = $1 AND d.namespace = $2 AND d.deletion_time IS NULL LIMIT $3`
	membersOf = `
SELECT ` + memberColumns + `, 0 FROM objects d WHERE d.kind = $1 AND d.deletion_time IS NULL LIMIT $2`
)
