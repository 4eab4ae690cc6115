package store

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
)

// CascadeRoot reads the root object of a cascade, without its body; false: it is
// neither stored nor archived. Cascades of a DeleteCollection have no root.
func (r *Reader) CascadeRoot(ctx context.Context, cascade string) (o object.Object, found bool, err error) {
	read := func(row sqldb.Row) error {
		o, found = object.Object{UID: RootOf(cascade)}, true
		return row.Scan(&o.Kind, &o.Namespace, &o.Name, &o.Revision)
	}
	var b sqldb.Batch
	b.Query(read, `SELECT kind, namespace, name, id FROM archive WHERE uid = $1`, string(RootOf(cascade)))
	b.Query(read, `SELECT kind, namespace, name, revision FROM objects WHERE uid = $1`, string(RootOf(cascade)))
	err = r.send(ctx, &b)
	if o.Kind == object.Namespaces {
		o.Namespace = "" // the archive stores a namespace as inside itself
	}
	return o, found, err
}

// CountRemoved counts the removed objects of a cascade, without its root, up to a
// bound.
func (r *Reader) CountRemoved(ctx context.Context, cascade string, most int64) (int64, error) {
	return r.count(ctx, `SELECT count(*) FROM (SELECT 1 FROM archive WHERE cascade = $1 AND cascade <> uid LIMIT $2) AS found`, cascade, most)
}

// CountBelowRemoved counts the dependents of those uids that are removed objects
// of a cascade, without its root, up to a bound.
func (r *Reader) CountBelowRemoved(ctx context.Context, cascade string, uids []types.UID, most int64) (int64, error) {
	return r.count(ctx, r.pick(countBelowRemovedSQLite, countBelowRemovedPostgres), cascade, sqldb.List(r.engine, uids), most)
}

// CountFollowing counts the dependents of all removed objects of a cascade,
// without those of its root.
func (r *Reader) CountFollowing(ctx context.Context, cascade string) (int64, error) {
	return r.count(ctx, countFollowing, cascade)
}

// Following reads dependents of a removed object and of the removed objects of its
// cascade, DELETING ones first.
func (r *Reader) Following(ctx context.Context, uid types.UID, cascade string, limit int) ([]*Stored, error) {
	return r.query(ctx, following, string(uid), cascade, limit)
}

const (
	// notBack: the removed object a was not restored.
	notBack = ` AND NOT EXISTS (SELECT 1 FROM objects b WHERE b.uid = a.uid)`

	countBelowRemovedSQLite = `
SELECT count(*) FROM (
    SELECT 1 FROM json_each($2) q JOIN archive a ON a.uid = q.value JOIN owners w ON w.owner_uid = q.value
    WHERE a.cascade = $1 AND a.cascade <> a.uid` + notBack + ` LIMIT $3) AS found`
	countBelowRemovedPostgres = `
SELECT count(*) FROM (
    SELECT 1 FROM unnest($2::text[]) AS q (uid) JOIN archive a ON a.uid = q.uid JOIN owners w ON w.owner_uid = q.uid
    WHERE a.cascade = $1 AND a.cascade <> a.uid` + notBack + ` LIMIT $3) AS found`
	countFollowing = `
SELECT count(*) FROM archive a JOIN owners w ON w.owner_uid = a.uid
WHERE a.cascade = $1 AND a.cascade <> a.uid` + notBack
	following = `
SELECT ` + storedColumns + `
WHERE d.id IN (
    SELECT dependent FROM owners WHERE owner_uid = $1
    UNION
    SELECT w.dependent FROM archive a JOIN owners w ON w.owner_uid = a.uid WHERE a.cascade = $2 AND a.cascade <> a.uid` + notBack + `)
ORDER BY d.deletion_time IS NULL, d.id LIMIT $3`
)
