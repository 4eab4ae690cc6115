// Package graph reads the graph of owners and dependents: heads and references, and no bodies. Its callers decide:
// what a reference means to the collector is not known here.
package graph

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
)

// Head is the head of an object, without its body.
type Head struct {
	object.Key
	UID        types.UID
	Deletion   int64 // in Unix seconds; 0 if not DELETING
	Finalizing int64
}

// FinalizeConfirm is the bit of Finalizing of a deletion that the guard counts, or holds.
const FinalizeConfirm = 16

// Held says that the guard holds the object's deletion.
func (h Head) Held() bool { return h.Deletion != 0 && h.Finalizing&FinalizeConfirm != 0 }

// Scan reads a row of HeadColumns.
func (h *Head) Scan(row sqldb.Row) error {
	return row.Scan((*string)(&h.UID), &h.Kind, &h.Namespace, &h.Name, &h.Deletion, &h.Finalizing)
}

// HeadColumns are the columns of a Head, of the object o.
const HeadColumns = `o.uid, o.kind, o.namespace, o.name, coalesce(o.deletion_time, 0), o.finalizing`

// Heads reads heads.
func Heads(ctx context.Context, s sqldb.Sender, statement string, args ...any) (out []Head, err error) {
	err = sqldb.Each(ctx, s, collect(&out), statement, args...)
	return out, err
}

func collect(into *[]Head) func(sqldb.Row) error {
	return func(row sqldb.Row) error {
		var h Head
		err := h.Scan(row)
		*into = append(*into, h)
		return err
	}
}

// IsOwner reports whether the object d has dependents, by one read of the index on
// owners. The form leaves PostgreSQL no other plan. With EXISTS, where nearly all
// references name one owner, the planner expects an early hit and reads the whole
// primary key for each object.
const IsOwner = `(SELECT TRUE FROM owners x
    WHERE x.owner_uid >= d.uid AND x.owner_uid <= d.uid ORDER BY x.owner_uid LIMIT 1) IS NOT NULL`

// CountDependents counts the references to an owner, up to a bound.
func CountDependents(ctx context.Context, s sqldb.Sender, owner types.UID, most int64) (n int64, err error) {
	_, err = sqldb.First(ctx, s, []any{&n}, `SELECT count(*) FROM (SELECT 1 FROM owners WHERE owner_uid = $1 LIMIT $2) AS found`, string(owner), most)
	return n, err
}

// CountBlocking counts the dependents that block the deletion of an owner.
func CountBlocking(ctx context.Context, s sqldb.Sender, owner Named) (n int64, err error) {
	_, err = sqldb.First(ctx, s, []any{&n}, `SELECT count(*)`+blocking, owner.Args()...)
	return n, err
}

// GroupKind is a kind as references name it.
type GroupKind struct{ Group, Kind string }

// KindsNamed reads the kinds that the references to a uid name, by the index on
// owners.
func KindsNamed(ctx context.Context, s sqldb.Sender, owner types.UID) (out []GroupKind, err error) {
	err = sqldb.Each(ctx, s, sqldb.Into(&out, func(k *GroupKind) []any { return []any{&k.Group, &k.Kind} }), `SELECT DISTINCT owner_group, owner_kind FROM owners WHERE owner_uid = $1`, string(owner))
	return out, err
}

// Named is an owner as the references that resolve to it name it: an empty kind
// is any kind of the group.
type Named struct {
	object.Key
	UID types.UID
	As  GroupKind
}

// Args are the arguments of IsBlocking.
func (n *Named) Args() []any {
	return []any{string(n.UID), n.Namespace, n.Name, n.As.Group, n.As.Kind}
}

// IsBlocking: a dependent blocks its owner's deletion if its reference names the owner's kind,
// name and uid, and a namespaced owner is in its namespace: others are no owners for
// the collector.
const (
	blocking = `
FROM owners w JOIN objects d ON d.id = w.dependent` + IsBlocking
	IsBlocking = `
WHERE w.owner_uid = $1 AND w.blocking AND ($2 = '' OR d.namespace = $2)
    AND w.owner_name = $3 AND w.owner_group = $4 AND ($5 = '' OR w.owner_kind = $5)`
)

// Blocked reports whether a dependent blocks the deletion of an owner; it stops at the first.
// circle reports that the owner may be its own dependent, through blocking dependents that
// are in foreground deletion too: the references are followed by uid, whatever else they name.
func Blocked(ctx context.Context, s sqldb.Sender, owner Named) (blocked, circle bool, err error) {
	var b sqldb.Batch
	QueueBlocked(&b, owner, &blocked, &circle)
	err = s.Send(ctx, &b)
	return blocked, circle, err
}

// QueueBlocked adds the statements of Blocked.
func QueueBlocked(b *sqldb.Batch, owner Named, blocked, circle *bool) {
	yes := func(found *bool) func(sqldb.Row) error {
		return func(row sqldb.Row) error {
			*found = true
			return row.Scan(new(int64))
		}
	}
	b.Query(yes(blocked), `SELECT 1`+blocking+` LIMIT 1`, owner.Args()...)
	b.Query(yes(circle), foregroundCircle, string(owner.UID))
}

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
func ForegroundBlockers(ctx context.Context, s sqldb.Sender, owners []Named) (out []Head, err error) {
	var b sqldb.Batch
	for i := range owners {
		b.Query(collect(&out), foregroundBlockers, owners[i].Args()...)
	}
	err = s.Send(ctx, &b)
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

// References reads a page of all references, behind a dependent's id and an
// owner's uid. It uses the primary key, then one read of each of the two objects.
func References(ctx context.Context, s sqldb.Sender, id int64, uid types.UID, limit int) (out []Reference, err error) {
	err = sqldb.Each(ctx, s, sqldb.Into(&out, func(f *Reference) []any {
		return []any{&f.ID, (*string)(&f.UID), &f.As.Group, &f.As.Kind, &f.Name,
			(*string)(&f.Dependent.UID), &f.Dependent.Namespace, &f.Dependent.Deletion,
			&f.Found, &f.Owner.Kind, &f.Owner.Namespace, &f.Owner.Name, &f.Owner.Deletion, &f.Owner.Finalizing}
	}), scanReferences, id, string(uid), limit)
	return out, err
}

// OwnersOf reads the references of one dependent.
func OwnersOf(ctx context.Context, s sqldb.Sender, id int64) (out []Reference, err error) {
	err = sqldb.Each(ctx, s, sqldb.Into(&out, func(f *Reference) []any {
		f.ID = id
		return []any{(*string)(&f.UID), &f.As.Group, &f.As.Kind, &f.Name,
			&f.Found, &f.Owner.Kind, &f.Owner.Namespace, &f.Owner.Name, &f.Owner.Deletion, &f.Owner.Finalizing, &f.Removed, &f.Inside}
	}), referencesOf, id)
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
func Finalizing(ctx context.Context, s sqldb.Sender, after types.UID, limit int) ([]types.UID, error) {
	return sqldb.Column[types.UID](ctx, s,
		`SELECT uid FROM objects WHERE deletion_time IS NOT NULL AND finalizing <> 0 AND uid > $1 ORDER BY uid LIMIT $2`, string(after), limit)
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
func MembersBelow(ctx context.Context, s sqldb.Sender, owners []types.UID, after []int64, limit int64) ([][]Member, error) {
	pages := make([][]Member, len(owners))
	var b sqldb.Batch
	for i, owner := range owners {
		b.Query(scanMember(&pages[i]), membersBelow, string(owner), after[i], limit)
	}
	return pages, s.Send(ctx, &b)
}

// AllNamespaces stands for every namespace; "" is that of cluster-scoped objects.
const AllNamespaces = "*"

// Members reads objects of a kind, in a namespace or in AllNamespaces, that are not DELETING.
func Members(ctx context.Context, s sqldb.Sender, kind, namespace string, limit int64) (out []Member, err error) {
	if namespace == AllNamespaces {
		err = sqldb.Each(ctx, s, scanMember(&out), membersOf, kind, limit)
		return out, err
	}
	err = sqldb.Each(ctx, s, scanMember(&out), membersIn, kind, namespace, limit)
	return out, err
}

func scanMember(into *[]Member) func(sqldb.Row) error {
	return sqldb.Into(into, func(m *Member) []any {
		return []any{&m.ID, (*string)(&m.UID), &m.Kind, &m.Namespace, &m.Finalizing, &m.Parent, &m.Owners}
	})
}

const (
	memberColumns = `d.id, d.uid, d.kind, d.namespace, d.finalizing, ` + IsOwner
	membersBelow  = `
SELECT ` + memberColumns + `, (SELECT count(*) FROM owners y WHERE y.dependent = d.id)
FROM owners w JOIN objects d ON d.id = w.dependent
WHERE w.owner_uid = $1 AND w.dependent > $2 AND d.deletion_time IS NULL ORDER BY w.dependent LIMIT $3`
	membersIn = `
SELECT ` + memberColumns + `, 0 FROM objects d WHERE d.kind = $1 AND d.namespace = $2 AND d.deletion_time IS NULL LIMIT $3`
	membersOf = `
SELECT ` + memberColumns + `, 0 FROM objects d WHERE d.kind = $1 AND d.deletion_time IS NULL LIMIT $2`
)
