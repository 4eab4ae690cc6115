package store

import (
	"context"
	"math"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/cascades"
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
	RequestID    string // the Audit-Id of that delete; empty means no request began the cascade
	Cascade      string
	Size         int64
	BodyRevision int64  // 0 if not kept
	Body         []byte // nil if not kept
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

// ArchiveFilter is the conditions of a list of the archive; an empty field is no
// condition. Of the fields in the second group one is set, and counts alone.
type ArchiveFilter struct {
	Namespace, Kind, Name, Actor, Requester, Cascade string

	UID types.UID  // its last removal
	Key object.Key // the last removal of an object with this key
	IDs []int64    // the removals at these revisions
	// Whole is a cascade's id: all its objects, in no order, those that were restored without their body. It reads
	// each once; pages in order would sort the cascade for each page.
	Whole string
}

// Archived calls visit with up to limit removed objects, the newest first, that
// were removed before a revision (0 means all).
func (r *Reader) Archived(ctx context.Context, f ArchiveFilter, before int64, limit int, visit func(*Archived) error) error {
	switch {
	case f.IDs != nil:
		return r.archived(ctx, visit, r.pick(archivedAllSQLite, archivedAllPostgres), sqldb.List(r.engine, f.IDs))
	case f.UID != "":
		return r.archived(ctx, visit, archivedByUID, string(f.UID))
	case f.Whole != "":
		return r.archived(ctx, visit, wholeCascade, f.Whole)
	case f.Key.Name != "":
		if f.Key.Kind == object.Namespaces {
			f.Key.Namespace = f.Key.Name
		}
		return r.archived(ctx, visit, lastRemoval, f.Key.Namespace, f.Key.Kind, f.Key.Name)
	}
	if before == 0 {
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

// CountArchived counts the objects of a namespace, or of all (""), that were removed before a revision, up to most.
func (r *Reader) CountArchived(ctx context.Context, namespace string, before, most int64) (int64, error) {
	return r.count(ctx, countArchived, before, namespace, most)
}

// LastArchived reads the newest removed object that matches; nil if the archive has none.
func (r *Reader) LastArchived(ctx context.Context, f ArchiveFilter) (found *Archived, err error) {
	err = r.Archived(ctx, f, 0, 1, func(a *Archived) error {
		found = a
		return nil
	})
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
	kept            = cascades.Kept
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

	countArchived = `
SELECT count(*) FROM (SELECT 1 FROM archive a WHERE a.id < $1 AND ($2 = '' OR a.namespace = $2)` + kept + ` LIMIT $3) AS found`

	// wholeCascade uses the same indexes.
	wholeCascade = `
SELECT ` + archivedWithBody + ` AND a.restored_as IS NULL WHERE a.cascade = $1 AND a.cascade <> a.uid` + kept + `
UNION ALL
SELECT ` + archivedWithBody + ` AND a.restored_as IS NULL WHERE a.uid = $1 AND a.cascade = a.uid` + kept

	// archivedByUID uses archive_uid_idx; archivedAll the primary key.
	archivedByUID     = `SELECT ` + archivedWithBody + ` WHERE a.uid = $1` + kept + ` ORDER BY a.id DESC LIMIT 1`
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
	err := r.rows(ctx, sqldb.Pairs(inside), removed[r.engine], sqldb.List(r.engine, uids))
	return inside, err
}

var removed = sqldb.WithLists(`SELECT uid, namespace <> '' FROM archive WHERE uid IN LIST($1, text)`)

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
	err = r.rows(ctx, sqldb.Into(&out, func(k *ArchivedKind) []any {
		return []any{&k.Storage, &k.Group, &k.Version, &k.Kind, &k.Plural, &k.Singular, &k.ShortNames, &k.Namespaced}
	}), `SELECT storage, api_group, api_version, kind, plural, singular, short_names, namespaced FROM archive_kinds`)
	return out, err
}
