package store

import (
	"context"
	"math"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/seal"
)

// Archived is a removed object in the archive.
type Archived struct {
	ID           int64 // the revision of its removal
	UID          types.UID
	Kind         string // storage name
	Namespace    string // a Namespace is in itself
	Name         string
	RemovedAt    int64 // in Unix milliseconds
	Actor        string
	Requester    string // the client whose delete began the cascade; may be the actor
	RequestID    string // the Audit-Id of that delete; empty: no request began the cascade
	Cascade      string
	Size         int64
	BodyRevision int64  // 0: not kept
	Body         []byte // nil: not kept
	Restored     bool
}

// Key returns the key that the object had.
func (a *Archived) Key() object.Key {
	k := object.Key{Kind: a.Kind, Namespace: a.Namespace, Name: a.Name}
	if a.Kind == object.Namespaces {
		k.Namespace = ""
	}
	return k
}

// ArchiveFilter is the conditions of a list of the archive; an empty string is no
// condition.
type ArchiveFilter struct{ Namespace, Kind, Name, Actor, Requester, Cascade string }

// Archived calls visit with up to limit removed objects, the newest first, that
// were removed before a revision (0: all).
func (r *Reader) Archived(ctx context.Context, f ArchiveFilter, before int64, limit int, visit func(*Archived) error) error {
	if before <= 0 {
		before = math.MaxInt64
	}
	statement, args := listArchived, []any{before, f.Namespace, f.Kind, f.Name, f.Actor, f.Requester}
	switch {
	case f.Cascade != "":
		statement, args = listCascade, append(args, f.Cascade)
	case f.Name != "" && f.Namespace != "":
		statement = listNamedIn
	case f.Name != "":
		statement = listNamed
	}
	return r.archived(ctx, visit, statement, append(args, int64(limit))...)
}

// ArchivedCascade calls visit with all removed objects of a cascade, in no order, those that were
// restored without their body. It reads each once; pages in order would sort the cascade for each page.
func (r *Reader) ArchivedCascade(ctx context.Context, cascade string, visit func(*Archived) error) error {
	return r.archived(ctx, visit, wholeCascade, cascade)
}

// ArchivedByUID reads the last removal of a uid; nil: the archive has none.
func (r *Reader) ArchivedByUID(ctx context.Context, uid types.UID) (*Archived, error) {
	return r.oneArchived(ctx, archivedByUID, string(uid))
}

// ArchivedByID reads the removal at a revision; nil: the archive has none.
func (r *Reader) ArchivedByID(ctx context.Context, id int64) (*Archived, error) {
	return r.oneArchived(ctx, archivedAt, id)
}

// ArchivedByIDs calls visit with the removals at some revisions that the archive has.
func (r *Reader) ArchivedByIDs(ctx context.Context, ids []int64, visit func(*Archived)) error {
	return r.archived(ctx, func(a *Archived) error {
		visit(a)
		return nil
	}, r.pick(archivedAllSQLite, archivedAllPostgres), sqldb.List(r.engine, ids))
}

// LastRemoval reads the last removal of an object with a key, by archive_name_idx; nil: the
// archive has none.
func (r *Reader) LastRemoval(ctx context.Context, key object.Key) (*Archived, error) {
	if key.Kind == object.Namespaces {
		key.Namespace = key.Name
	}
	return r.oneArchived(ctx, lastRemoval, key.Namespace, key.Kind, key.Name)
}

func (r *Reader) oneArchived(ctx context.Context, statement string, args ...any) (found *Archived, err error) {
	err = r.archived(ctx, func(a *Archived) error {
		found = a
		return nil
	}, statement, args...)
	return found, err
}

func (r *Reader) archived(ctx context.Context, visit func(*Archived) error, statement string, args ...any) error {
	return r.rows(ctx, func(row sqldb.Row) error {
		a := &Archived{}
		err := row.Scan(&a.ID, (*string)(&a.UID), &a.Kind, &a.Namespace, &a.Name, &a.RemovedAt, &a.Actor, &a.Requester, &a.RequestID, &a.Cascade, &a.Size, &a.BodyRevision, &a.Restored, &a.Body)
		if err != nil {
			return err
		}
		if a.Body, err = r.keys.Open(seal.Object{Key: a.Key(), UID: string(a.UID)}, a.Body); err != nil {
			return err
		}
		return visit(a)
	}, statement, args...)
}

// Each statement reads the columns that archived scans. kept: the row is not leaving.
const (
	kept            = ` AND NOT EXISTS (SELECT 1 FROM archive_cascades l WHERE l.id = a.cascade AND l.leaving >= a.id)`
	archivedColumns = `a.id, a.uid, a.kind, a.namespace, a.name, a.removed_at, a.actor, coalesce(a.requester, a.actor), coalesce(a.request_id, ''), a.cascade, a.size,
    coalesce(a.body_revision, 0), a.restored_as IS NOT NULL, c.body`
	archivedWithBody = archivedColumns + `
FROM archive a LEFT JOIN changes c ON c.revision = a.body_revision`
	archiveConditions = `
WHERE a.id < $1` + archiveFilter
	archiveFilter = kept + `
  AND ($2 = '' OR a.namespace = $2) AND ($3 = '' OR a.kind = $3) AND ($4 = '' OR a.name = $4) AND ($5 = '' OR a.actor = $5)
  AND ($6 = '' OR coalesce(a.requester, a.actor) = $6)
ORDER BY a.id DESC`

	// listArchived uses the primary key in descending order; listNamed and listNamedIn
	// archive_name_idx; listCascade archive_cascade_idx, and archive_uid_idx for the root object.
	listArchived = `SELECT ` + archivedWithBody + archiveConditions + ` LIMIT $7`
	listNamed    = `SELECT ` + archivedWithBody + ` WHERE a.name = $4 AND a.id < $1` + archiveFilter + ` LIMIT $7`
	listNamedIn  = `SELECT ` + archivedWithBody + ` WHERE a.name = $4 AND a.namespace = $2 AND a.id < $1` + archiveFilter + ` LIMIT $7`
	listCascade  = `
SELECT ` + archivedColumns + `
FROM (
    SELECT * FROM archive WHERE cascade = $7 AND cascade <> uid
    UNION ALL
    SELECT * FROM archive WHERE uid = $7 AND cascade = uid
) a LEFT JOIN changes c ON c.revision = a.body_revision` + archiveConditions + ` LIMIT $8`

	// wholeCascade uses the same indexes.
	wholeCascade = `
SELECT ` + archivedWithBody + ` AND a.restored_as IS NULL WHERE a.cascade = $1 AND a.cascade <> a.uid` + kept + `
UNION ALL
SELECT ` + archivedWithBody + ` AND a.restored_as IS NULL WHERE a.uid = $1 AND a.cascade = a.uid` + kept

	// archivedByUID uses archive_uid_idx; archivedAt the primary key.
	archivedByUID = `SELECT ` + archivedWithBody + ` WHERE a.uid = $1` + kept + ` ORDER BY a.id DESC LIMIT 1`
	archivedAt    = `SELECT ` + archivedWithBody + ` WHERE a.id = $1` + kept
	// archivedAll is archivedAt for many.
	archivedAllSQLite = `SELECT ` + archivedColumns + ` FROM json_each($1) j JOIN archive a ON a.id = j.value LEFT JOIN changes c ON c.revision = a.body_revision
WHERE TRUE` + kept
	archivedAllPostgres = `SELECT ` + archivedColumns + ` FROM unnest($1::bigint[]) AS j (id)
CROSS JOIN LATERAL (SELECT * FROM archive WHERE id = j.id OFFSET 0) AS a
LEFT JOIN LATERAL (SELECT body FROM changes WHERE revision = a.body_revision OFFSET 0) AS c ON TRUE
WHERE TRUE` + kept
	lastRemoval = `SELECT ` + archivedWithBody + ` WHERE a.namespace = $1 AND a.kind = $2 AND a.name = $3` + kept + `
ORDER BY a.id DESC LIMIT 1`
)

// Removed reads which of some uids are in the archive, and whether the object was
// in a namespace, by archive_uid_idx.
func (r *Reader) Removed(ctx context.Context, uids []types.UID) (map[types.UID]bool, error) {
	inside := map[types.UID]bool{}
	if len(uids) == 0 {
		return inside, nil
	}
	err := r.rows(ctx, func(row sqldb.Row) error {
		var uid types.UID
		var in bool
		err := row.Scan((*string)(&uid), &in)
		inside[uid] = in
		return err
	}, r.pick(removedSQLite, removedPostgres), sqldb.List(r.engine, uids))
	return inside, err
}

const (
	removedSQLite   = `SELECT uid, namespace <> '' FROM archive WHERE uid IN (SELECT value FROM json_each($1))`
	removedPostgres = `SELECT uid, namespace <> '' FROM archive WHERE uid = ANY ($1::text[])`
)

// WasRemoved reports whether a uid is in the archive.
func (r *Reader) WasRemoved(ctx context.Context, uid types.UID) (bool, error) {
	return r.one(ctx, []any{new(int64)}, `SELECT 1 FROM archive WHERE uid = $1 LIMIT 1`, string(uid))
}

// ArchivesKind reports whether the archive has objects of a kind. It scans the
// archive if there is none.
func (r *Reader) ArchivesKind(ctx context.Context, kind string) (bool, error) {
	return r.one(ctx, []any{new(int64)}, `SELECT 1 FROM archive WHERE kind = $1 LIMIT 1`, kind)
}

// ArchivedKind is a kind whose CustomResourceDefinition was removed.
type ArchivedKind struct {
	Storage                      string
	Group, Version, Kind         string
	Plural, Singular, ShortNames string // ShortNames: a JSON array
	Namespaced                   bool
}

// ArchivedKinds reads the kinds whose definition was removed. They are few.
func (r *Reader) ArchivedKinds(ctx context.Context) (out []ArchivedKind, err error) {
	err = r.rows(ctx, func(row sqldb.Row) error {
		var k ArchivedKind
		err := row.Scan(&k.Storage, &k.Group, &k.Version, &k.Kind, &k.Plural, &k.Singular, &k.ShortNames, &k.Namespaced)
		out = append(out, k)
		return err
	}, `SELECT storage, api_group, api_version, kind, plural, singular, short_names, namespaced FROM archive_kinds`)
	return out, err
}

// RestoredAs is the uid that a removed object was last restored as, by
// archive_uid_idx; empty: it was not.
func (r *Reader) RestoredAs(ctx context.Context, uid types.UID) (as types.UID, err error) {
	_, err = r.one(ctx, []any{(*string)(&as)}, `SELECT coalesce(restored_as, '') FROM archive WHERE uid = $1 ORDER BY id DESC LIMIT 1`, string(uid))
	return as, err
}

// CountUnrestored counts the names in a cascade that have no restored object,
// except the archive's row id. It uses archive_cascade_idx, and the unique index on
// objects.uid for each row. The ServiceAccount "default" does not count: every namespace
// has one.
func (r *Reader) CountUnrestored(ctx context.Context, cascade string, id int64) (int64, error) {
	return r.count(ctx, countUnrestored, cascade, id)
}

const countUnrestored = `
SELECT count(*) FROM (
    SELECT a.kind, a.namespace, a.name FROM (
        SELECT * FROM archive WHERE cascade = $1 AND cascade <> uid
        UNION ALL
        SELECT * FROM archive WHERE uid = $1 AND cascade = uid
    ) a LEFT JOIN objects o ON o.uid = a.restored_as
    WHERE (a.kind <> 'serviceaccounts' OR a.name <> 'default')` + kept + `
    GROUP BY a.kind, a.namespace, a.name
    HAVING count(o.id) = 0 AND max(CASE WHEN a.id = $2 THEN 1 ELSE 0 END) = 0
) AS names`
