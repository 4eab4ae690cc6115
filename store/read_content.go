package store

import (
	"context"

	"github.com/exeunt/exeunt/sqldb"
)

// Kinds reads the kinds that have objects, in order, by skipping through the
// unique index: as many steps as there are kinds.
func (r *Reader) Kinds(ctx context.Context) (out []string, err error) {
	err = r.rows(ctx, func(row sqldb.Row) error {
		var kind string
		err := row.Scan(&kind)
		out = append(out, kind)
		return err
	}, kindsStored)
	return out, err
}

// KindsIn reads the kinds that have objects in a namespace, in order. It does not
// count them: that would make a large namespace slow to empty.
func (r *Reader) KindsIn(ctx context.Context, namespace string) ([]string, error) {
	stored, err := r.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	var present []string
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

// Content reads a kind's objects in a namespace, by name, behind a name.
func (r *Reader) Content(ctx context.Context, kind, namespace, after string, limit int) ([]*Stored, error) {
	return r.query(ctx, content, kind, namespace, after, limit)
}

// ActiveContent is Content without the DELETING objects.
func (r *Reader) ActiveContent(ctx context.Context, kind, namespace, after string, limit int) ([]*Stored, error) {
	return r.query(ctx, r.pick(activeContentSQLite, activeContentPostgres), kind, namespace, after, limit)
}

// AllOfKind reads a kind's objects, by namespace and name, behind both.
func (r *Reader) AllOfKind(ctx context.Context, kind, namespace, name string, limit int) ([]*Stored, error) {
	return r.query(ctx, allOfKind, kind, namespace, name, limit)
}

// DeletingIn reads DELETING objects of a kind in a namespace, by name.
func (r *Reader) DeletingIn(ctx context.Context, kind, namespace string, limit int) ([]*Stored, error) {
	return r.query(ctx, deletingIn, kind, namespace, limit)
}

// DeletingOf reads DELETING objects of a kind in all namespaces.
func (r *Reader) DeletingOf(ctx context.Context, kind string, limit int) ([]*Stored, error) {
	return r.query(ctx, deletingOf, kind, limit)
}

const (
	content = `
SELECT ` + storedColumns + `
WHERE d.kind = $1 AND d.namespace = $2 AND d.name > $3 ORDER BY d.name LIMIT $4`
	activeContentSQLite = `
SELECT ` + storedColumns + `
WHERE d.kind = $1 AND d.namespace = $2 AND d.name > $3 AND d.deletion_time IS NULL ORDER BY d.name LIMIT $4`
	activeContentPostgres = `
SELECT ` + headColumns + `, c.body
FROM (SELECT * FROM objects WHERE kind = $1 AND namespace = $2 AND name > $3 AND deletion_time IS NULL ORDER BY name LIMIT $4) AS d` + bodyPostgres + `
ORDER BY d.name`
	allOfKind = `
SELECT ` + storedColumns + `
WHERE d.kind = $1 AND (d.namespace, d.name) > ($2, $3) ORDER BY d.namespace, d.name LIMIT $4`
	deletingIn = `
SELECT ` + storedColumns + `
WHERE d.kind = $1 AND d.namespace = $2 AND d.deletion_time IS NOT NULL ORDER BY d.name LIMIT $3`
	deletingOf = `
SELECT ` + storedColumns + `
WHERE d.kind = $1 AND d.deletion_time IS NOT NULL ORDER BY d.namespace, d.name LIMIT $2`
)

// CountIn counts the objects of a kind in a namespace, up to a bound.
func (r *Reader) CountIn(ctx context.Context, kind, namespace string, most int64) (int64, error) {
	return r.count(ctx, `SELECT count(*) FROM (SELECT 1 FROM objects WHERE kind = $1 AND namespace = $2 LIMIT $3) AS found`, kind, namespace, most)
}

// CountOf counts the objects of a kind.
func (r *Reader) CountOf(ctx context.Context, kind string) (int64, error) {
	return r.count(ctx, `SELECT count(*) FROM objects WHERE kind = $1`, kind)
}
