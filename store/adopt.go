package store

import (
	"context"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store/seal"
)

// Objects of a backup come back through the archive: Adopt puts them there, as one cascade, and a restore of that
// cascade follows the rules of every restore. Their bodies are in changes, as those of other archived objects, and
// their rows are in archive, with numbers below zero: no change has those, so no watch, list or history sees them, and
// expiry deletes them with their row.

// Adopt puts an object into the archive, as a part of a cascade of its own. It does nothing if the cascade has
// the object. actor is who asks for it.
func (t *Tx) Adopt(ctx context.Context, o object.Object, cascade, actor string) error {
	var id int64
	found, err := t.one(ctx, []any{&id}, `SELECT id FROM archive WHERE cascade = $1 AND uid = $2`, cascade, string(o.UID))
	if found || err != nil {
		return err
	}
	if _, err := t.one(ctx, []any{&id}, nextAdopted, -t.Now.UnixMicro()); err != nil {
		return err
	}
	stored := o.Body
	if t.keys.Seals(o.Key.Kind) {
		if stored, err = t.keys.Seal(t.sealing, seal.Of(&o), o.Body); err != nil {
			return err
		}
	}
	namespace := o.Key.Namespace
	if o.Key.Kind == object.Namespaces {
		namespace = o.Key.Name
	}
	now, size := t.Now.UnixMilli(), int64(len(stored))
	t.Defer(adoptBody, id, string(o.UID), o.Key.Kind, o.Key.Namespace, o.Key.Name, stored)
	t.Defer(adoptRow, id, string(o.UID), o.Key.Kind, namespace, o.Key.Name, now, actor, cascade, size)
	t.Defer(adoptCascade, cascade, namespace, size, now)
	t.Defer(`UPDATE revision SET archived = archived + $1`, size)
	return nil
}

// Seals reports whether the bodies of a kind are sealed in the database.
func (s *Store) Seals(kind string) bool { return s.opts.Keys.Seals(kind) }

const (
	// nextAdopted is the next number below zero, and below those of the time before $1: numbers are not used again.
	nextAdopted = `SELECT CASE WHEN min(revision) <= $1 THEN min(revision) - 1 ELSE $1 END FROM changes`
	// adoptBody: type 3 has no triggers, and is not the state of an object.
	adoptBody = `INSERT INTO changes (revision, object, uid, kind, namespace, name, type, body) VALUES ($1, $1, $2, $3, $4, $5, 3, $6)`
	adoptRow  = `
INSERT INTO archive (id, uid, kind, namespace, name, body_revision, removed_at, actor, cascade, size) VALUES ($1, $2, $3, $4, $5, $1, $6, $7, $8, $9)`
	// adoptCascade counts the row, as countCascades does with rows after archive_counted.
	adoptCascade = `
INSERT INTO archive_cascades AS c (id, namespace, objects, bytes, removed_at) VALUES ($1, $2, 1, $3, $4)
ON CONFLICT (id) DO UPDATE SET objects = c.objects + 1, bytes = c.bytes + excluded.bytes, removed_at = excluded.removed_at`
)

// Copied calls visit with the objects of a copied database that want accepts, without those that were being deleted, in
// the order of its log. rows reads columns of a table of it.
func Copied(ctx context.Context, rows func(ctx context.Context, table string, columns []string, visit func([][]byte) error) error, keys *seal.Keys,
	want func(object.Key) bool, visit func(object.Object) error) error {
	wanted := map[string]object.Object{} // by revision
	err := rows(ctx, "objects", []string{"revision", "uid", "kind", "namespace", "name", "deletion_time"}, func(v [][]byte) error {
		o := object.Object{UID: types.UID(v[1]), Key: object.Key{Kind: string(v[2]), Namespace: string(v[3]), Name: string(v[4])}}
		if v[5] == nil && worthArchiving(o.Key) && want(o.Key) {
			wanted[string(v[0])] = o
		}
		return nil
	})
	if err != nil {
		return err
	}
	return rows(ctx, "changes", []string{"revision", "body"}, func(v [][]byte) (err error) {
		o, ok := wanted[string(v[0])]
		if !ok {
			return nil
		}
		if o.Revision, err = strconv.ParseInt(string(v[0]), 10, 64); err != nil {
			return fmt.Errorf("read %s of the backup: %w", o.Key, err)
		}
		if o.Body, err = keys.Open(seal.Of(&o), append([]byte{}, v[1]...)); err != nil {
			return err
		}
		return visit(o)
	})
}
