package store

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/cascades"
	"github.com/exeunt/exeunt/store/graph"
)

// Owners as references name them, and heads, are those of package graph.
type (
	Head      = graph.Head
	Named     = graph.Named
	GroupKind = graph.GroupKind
)

// Below is a page of the dependents of an owner that are not DELETING, in the order of their ids, behind an id.
type Below struct {
	Owner    types.UID
	After    int64
	Limit    int
	Deleting bool // DELETING ones too
	Newest   bool // from the last that was created on; After and Deleting do not count
}

// Dependents reads a page of dependents.
func (r *Reader) Dependents(ctx context.Context, p Below) ([]*Stored, error) {
	switch {
	case p.Newest:
		return r.query(ctx, newestDependents, string(p.Owner), p.Limit)
	case p.Deleting:
		return r.query(ctx, r.pick(allDependentsSQLite, allDependentsPostgres), string(p.Owner), p.After, p.Limit)
	}
	return r.query(ctx, r.pick(dependentsSQLite, dependentsPostgres), string(p.Owner), p.After, p.Limit)
}

// BlockingDependents reads dependents that block the owner's deletion, DELETING ones
// first.
func (r *Reader) BlockingDependents(ctx context.Context, owner Named, limit int) ([]*Stored, error) {
	return r.query(ctx, blockingDependents, append(owner.Args(), limit)...)
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
CROSS JOIN LATERAL (SELECT d.*, ` + graph.IsOwner + ` AS parent FROM objects d WHERE d.id = w.dependent`
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
SELECT ` + ownedColumns + graph.IsBlocking + ` ORDER BY d.deletion_time IS NULL, w.dependent LIMIT $6`
)

// Dependent is an object with its reference to one owner.
type Dependent struct {
	Stored
	Owner    types.UID
	Blocking bool      // the reference blocks, and has the name of the object with that uid, which is in no other namespace
	As       GroupKind // of the owner, as the reference names it
}

// DependentsOf reads dependents of some owners, in the order of owner and id, at
// most limit. Of a single owner it reads those behind an id: each page begins in
// the index where the last one ended, so a walk reads 100,000 dependents once.
func (r *Reader) DependentsOf(ctx context.Context, owners []types.UID, after int64, limit int) ([]*Dependent, error) {
	if len(owners) == 1 {
		return r.dependents(ctx, dependentsAfter, string(owners[0]), after, limit)
	}
	return r.dependents(ctx, dependentsOf[r.engine], sqldb.List(r.engine, owners), limit)
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
	dependentsAfter = `
SELECT ` + referenceColumns + `
FROM owners w JOIN objects d ON d.id = w.dependent JOIN changes c ON c.revision = d.revision
WHERE w.owner_uid = $1 AND w.dependent > $2 ORDER BY w.dependent LIMIT $3`
)

var dependentsOf = sqldb.WithLists(`
SELECT ` + referenceColumns + `
FROM LIST($1, text) AS f JOIN owners w ON w.owner_uid = f.value
    JOIN objects d ON d.id = w.dependent JOIN changes c ON c.revision = d.revision
ORDER BY w.owner_uid, w.dependent LIMIT $2`)

// Family is an owner as a review needs it: itself, its own owners that exist, the first of its
// dependents that are not DELETING, and what Blocked answers.
type Family struct {
	Owner           *Stored // nil if it does not exist
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
	graph.QueueBlocked(&b, owner, &f.Blocked, &f.Circle)
	if err := r.send(ctx, &b); err != nil {
		return Family{}, fmt.Errorf("read objects: %w", err)
	}
	f.Owner, err = first(found, nil)
	return f, err
}

const headsAbove = `
SELECT ` + graph.HeadColumns + `
FROM objects d JOIN owners w ON w.dependent = d.id JOIN objects o ON o.uid = w.owner_uid WHERE d.uid = $1`

// Following reads dependents of a removed object and of the removed objects of its
// cascade, DELETING ones first.
func (r *Reader) Following(ctx context.Context, uid types.UID, cascade string, limit int) ([]*Stored, error) {
	return r.query(ctx, following, cascade, string(uid), limit)
}

const following = `
SELECT ` + storedColumns + `
WHERE d.id IN (
    SELECT dependent FROM owners WHERE owner_uid = $2
    UNION
    SELECT w.dependent FROM archive a JOIN owners w ON w.owner_uid = a.uid WHERE TRUE` + cascades.Followed + `)
ORDER BY d.deletion_time IS NULL, d.id LIMIT $3`

// AllNamespaces stands for every namespace; "" is that of cluster-scoped objects.
const AllNamespaces = graph.AllNamespaces

// Kinds reads the kinds that have objects, in a namespace or in AllNamespaces, in order. It skips through the
// unique index, as many steps as there are kinds, and does not count: that would make a large namespace
// slow to empty.
func (r *Reader) Kinds(ctx context.Context, namespace string) (present []string, err error) {
	stored, err := sqldb.Column[string](ctx, r, kindsStored)
	if err != nil || namespace == AllNamespaces {
		return stored, err
	}
	var b sqldb.Batch
	for _, kind := range stored {
		b.Query(func(row sqldb.Row) error {
			present = append(present, kind)
			return row.Scan(new(int64))
		}, `SELECT 1 FROM objects WHERE kind = $1 AND namespace = $2 LIMIT 1`, kind, namespace)
	}
	err = r.send(ctx, &b)
	return present, err
}

const kindsStored = `
WITH RECURSIVE k (kind) AS (
    SELECT min(kind) FROM objects
    UNION ALL
    SELECT (SELECT min(kind) FROM objects o WHERE o.kind > k.kind) FROM k WHERE k.kind IS NOT NULL
)
SELECT kind FROM k WHERE kind IS NOT NULL`

// State selects objects by whether they are DELETING.
type State int

// The states.
const (
	AnyState State = iota
	Active
	Deleting
)

// Selection is objects of a kind, in a namespace by name, or in AllNamespaces by namespace and name.
type Selection struct {
	Kind, Namespace string
	State           State
	// AfterNamespace and After are where the page before ended; in one namespace only After counts.
	AfterNamespace, After string
	Limit                 int
}

// Select reads objects.
func (r *Reader) Select(ctx context.Context, q Selection) ([]*Stored, error) {
	all, from := q.Namespace == AllNamespaces, q.Namespace
	if all {
		from = q.AfterNamespace
	}
	return r.query(ctx, selections[selection{r.engine, all, q.State}], q.Kind, from, q.After, q.Limit)
}

// selection says which statement Select needs.
type selection struct {
	engine sqldb.Engine
	all    bool // in all namespaces
	state  State
}

// selections read by the unique index. On PostgreSQL the order in which the tables of a namespace's content are read
// is fixed, as in read_owner.go.
var selections = func() map[selection]string {
	made := map[selection]string{}
	for state, condition := range []string{"", ` AND d.deletion_time IS NULL`, ` AND d.deletion_time IS NOT NULL`} {
		const here, everywhere = ` WHERE d.kind = $1 AND d.namespace = $2 AND d.name > $3`, ` WHERE d.kind = $1 AND (d.namespace, d.name) > ($2, $3)`
		for _, engine := range []sqldb.Engine{sqldb.SQLite, sqldb.Postgres} {
			made[selection{engine, true, State(state)}] = `SELECT ` + storedColumns + everywhere + condition + ` ORDER BY d.namespace, d.name LIMIT $4`
		}
		made[selection{sqldb.SQLite, false, State(state)}] = `SELECT ` + storedColumns + here + condition + ` ORDER BY d.name LIMIT $4`
		made[selection{sqldb.Postgres, false, State(state)}] = `SELECT ` + headColumns + `, c.body
FROM (SELECT * FROM objects d` + here + condition + ` ORDER BY d.name LIMIT $4) AS d` + bodyPostgres + `
ORDER BY d.name`
	}
	return made
}()

// Count counts the objects of a kind, in a namespace or in AllNamespaces, up to a bound.
func (r *Reader) Count(ctx context.Context, kind, namespace string, most int64) (int64, error) {
	if namespace == AllNamespaces {
		return r.count(ctx, `SELECT count(*) FROM (SELECT 1 FROM objects WHERE kind = $1 LIMIT $2) AS found`, kind, most)
	}
	return r.count(ctx, `SELECT count(*) FROM (SELECT 1 FROM objects WHERE kind = $1 AND namespace = $2 LIMIT $3) AS found`, kind, namespace, most)
}

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
