package store

import (
	"context"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/graph"
)

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
