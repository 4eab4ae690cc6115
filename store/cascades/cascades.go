// Package cascades reads the cascades of deletions: which there are, how far they are, and what they left
// in the archive. It reads heads, counts and rows of the archive, and no bodies.
package cascades

import (
	"context"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"cmp"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
)

// life is between the uid and the rest in the id of a restored object's cascade.
const life = "."

// IDOf is the id of the cascade that the deletion of a restored object begins. It names the archive row that the
// object was restored from, so no two of its lives have the same. Of other objects it is the uid.
func IDOf(uid string, row int64) string { return uid + life + strconv.FormatInt(row, 10) }

// RootUID is the uid of the object whose deletion began a cascade.
func RootUID(id string) types.UID {
	uid, _, _ := strings.Cut(id, life)
	return types.UID(uid)
}

// Cascade is one deletion as a unit. Times are in Unix milliseconds.
type Cascade struct {
	ID            string
	Root          object.Object // its key and uid; of a DeleteCollection: the first that was removed
	Requester     string
	RequestID     string // the Audit-Id of the delete; empty means no request began the cascade
	StartedAt     int64
	LastRemovedAt int64 // 0 if none was removed
	Removed       int64 // counts the objects in the archive
	Deleting      bool  // objects of it are DELETING
	// Restored counts the removed objects that were restored, and Bytes is the size of all. Of more than
	// 10,000, Bytes may be half a minute old.
	Restored, Bytes int64
	// Purged counts the objects that clients purged from the archive.
	Purged int64
	// Held: the guard holds the deletion of the root. Confirmer is the client that confirmed it while it was held.
	Held      bool
	Confirmer string
}

// mostSummed is how many rows of a cascade sumCascade reads.
const mostSummed = 10_000

// List returns the ids of cascades, at most limit: those under way, then the newest,
// of one namespace or of all (""). Those of a DeleteCollection have no root in the
// archive; they are found among the newest 2,000 removals.
func List(ctx context.Context, s sqldb.Sender, namespace string, limit int) (ids []string, err error) {
	seen := map[string]bool{}
	for _, statement := range []string{deletingCascades, recentCascades, rootCascades} {
		found, err := sqldb.Column[string](ctx, s, statement, namespace, limit)
		if err != nil {
			return nil, err
		}
		for _, id := range found {
			if len(ids) < limit && !seen[id] {
				ids, seen[id] = append(ids, id), true
			}
		}
	}
	return ids, nil
}

// Queued reads the cascades that the collector still has work of, apart from
// DELETING objects.
func Queued(ctx context.Context, s sqldb.Sender) (map[string]bool, error) {
	ids, err := sqldb.Column[string](ctx, s, queuedCascades)
	queued := make(map[string]bool, len(ids))
	for _, id := range ids {
		queued[id] = true
	}
	return queued, err
}

// Open is what a cascade has to remove, or begin with.
type Open struct {
	Deleting int64 // objects that are DELETING
	// Owners and Containers (Namespaces and definitions) are those whose dependents and content have to follow:
	// removed and in the collector's queue, or DELETING. They are not owners that orphan their dependents.
	Owners, Containers []types.UID
}

// ReadOpen reads what is open of a cascade.
func ReadOpen(ctx context.Context, s sqldb.Sender, id string) (o Open, err error) {
	err = sqldb.Each(ctx, s, func(row sqldb.Row) error {
		var uid types.UID
		var deleting, owns, contains bool
		err := row.Scan((*string)(&uid), &deleting, &owns, &contains)
		if deleting {
			o.Deleting++
		}
		if owns {
			o.Owners = append(o.Owners, uid)
		}
		if contains {
			o.Containers = append(o.Containers, uid)
		}
		return err
	}, openOwners, id)
	return o, err
}

// Purged counts the objects of a cascade that clients purged from the archive.
func Purged(ctx context.Context, s sqldb.Sender, id string) (int64, error) {
	return count(ctx, s, `SELECT purged FROM archive_cascades WHERE id = $1`, id)
}

func count(ctx context.Context, s sqldb.Sender, statement string, args ...any) (n int64, err error) {
	_, err = sqldb.First(ctx, s, []any{&n}, statement, args...)
	return n, err
}

// Read reads one cascade; nil if there is none.
func Read(ctx context.Context, s sqldb.Sender, id string) (*Cascade, error) {
	c := &Cascade{ID: id}
	found := false
	root := func(row sqldb.Row) error {
		if found {
			return nil
		}
		found = true
		return row.Scan((*string)(&c.Root.UID), &c.Root.Kind, &c.Root.Namespace, &c.Root.Name, &c.Requester, &c.RequestID, &c.StartedAt, &c.Held, &c.Confirmer)
	}
	var b sqldb.Batch
	b.Query(root, cascadeRootArchived, id, string(RootUID(id)))
	b.Query(root, cascadeRootDeleting, id, string(RootUID(id)))
	b.Query(root, cascadeFirst, id)
	b.Query(func(row sqldb.Row) error { return row.Scan(&c.Restored, &c.Bytes, &c.LastRemovedAt) }, sumCascade, id)
	add := func(into *int64) func(sqldb.Row) error {
		return func(row sqldb.Row) error {
			var n int64
			err := row.Scan(&n)
			*into += n
			return err
		}
	}
	b.Query(add(&c.Removed), countCascade, id)
	b.Query(func(row sqldb.Row) error { return row.Scan(&c.Deleting) }, cascadeDeleting, id)
	var bytes int64
	var restored bool
	b.Query(func(row sqldb.Row) error { return row.Scan(&bytes, &c.Purged, &restored) }, counted, id)
	if err := s.Send(ctx, &b); err != nil || !found {
		return nil, err
	}
	if c.Removed > mostSummed {
		c.Bytes = max(c.Bytes, bytes)
		if restored {
			var err error
			if c.Restored, err = count(ctx, s, countRestored, id); err != nil {
				return nil, err
			}
		}
	}
	if c.Root.Kind == object.Namespaces {
		c.Root.Namespace = "" // the archive stores a namespace as inside itself
	}
	c.Root.UID = cmp.Or(c.Root.UID, RootUID(id))
	return c, nil
}

// Kept is the condition that a row a of the archive is not leaving.
const Kept = ` AND NOT EXISTS (SELECT 1 FROM archive_cascades l WHERE l.id = a.cascade AND l.leaving >= a.id)`

const (
	// deletingCascades: objects_cascade_idx. A root has no deletion_cascade.
	deletingCascades = `
SELECT coalesce(deletion_cascade, uid) FROM objects
WHERE deletion_time IS NOT NULL AND ($1 = '' OR namespace = $1 OR kind = 'namespaces' AND name = $1)
GROUP BY coalesce(deletion_cascade, uid) ORDER BY max(deletion_time) DESC LIMIT $2`
	// recentCascades: the newest rows, by the primary key.
	recentCascades = `
SELECT a.cascade FROM (SELECT id, cascade, namespace FROM archive ORDER BY id DESC LIMIT 2000) AS a
WHERE ($1 = '' OR a.namespace = $1)` + Kept + ` GROUP BY a.cascade ORDER BY max(a.id) DESC LIMIT $2`
	// rootCascades: archive_roots_idx.
	rootCascades = `
SELECT cascade FROM archive a WHERE substr(cascade, 1, length(uid)) = uid AND ($1 = '' OR namespace = $1)` + Kept + ` ORDER BY id DESC LIMIT $2`

	// queuedCascades are the cascades whose removed owners the collector still has to review, or
	// whose deletes wait for admission.
	queuedCascades = `
SELECT DISTINCT a.cascade FROM (
    SELECT uid FROM gc_object_reviews UNION ALL SELECT event FROM gc_admission_reviews) q JOIN archive a ON a.uid = q.uid`

	cascadeRootArchived = `
SELECT uid, kind, namespace, name, coalesce(requester, actor), coalesce(request_id, ''), removed_at, FALSE, coalesce(confirmer, '') FROM archive a WHERE uid = $2 AND cascade = $1` + Kept
	// 16 is store.FinalizeConfirm.
	cascadeRootDeleting = `
SELECT uid, kind, namespace, name, coalesce(deletion_requester, deletion_actor, ''), coalesce(deletion_request_id, ''), deletion_time * 1000, finalizing & 16 <> 0, coalesce(deletion_confirmer, '') FROM objects
WHERE uid = $2 AND deletion_time IS NOT NULL AND coalesce(deletion_cascade, uid) = $1`
	cascadeFirst = `
SELECT uid, kind, namespace, name, coalesce(requester, actor), coalesce(request_id, ''), removed_at, FALSE, coalesce(confirmer, '') FROM archive a WHERE cascade = $1 AND cascade <> uid` + Kept + ` ORDER BY id LIMIT 1`

	countCascade = `
SELECT (SELECT count(*) FROM archive WHERE cascade = $1 AND cascade <> uid) + (SELECT count(*) FROM archive WHERE uid = $1 AND cascade = uid)`
	counted       = `SELECT bytes, purged, restored_at IS NOT NULL FROM archive_cascades WHERE id = $1`
	countRestored = `
SELECT (SELECT count(restored_as) FROM archive WHERE cascade = $1 AND cascade <> uid) + (SELECT count(restored_as) FROM archive WHERE uid = $1 AND cascade = uid)`
	cascadeDeleting = `SELECT EXISTS (SELECT 1 FROM objects WHERE coalesce(deletion_cascade, uid) = $1 AND deletion_time IS NOT NULL)`
	// openOwners: archive_uid_idx for each row of the queues, and objects_cascade_idx. A restored uid has several rows in the
	// archive, of which the newest counts. 1 is store.FinalizeOrphan.
	openOwners = `
SELECT q.uid, FALSE, TRUE, FALSE FROM (SELECT uid FROM gc_object_reviews UNION SELECT event FROM gc_admission_reviews) q
WHERE EXISTS (SELECT 1 FROM archive a WHERE a.uid = q.uid AND a.cascade = $1 AND a.id = (SELECT max(l.id) FROM archive l WHERE l.uid = q.uid))
    AND NOT EXISTS (SELECT 1 FROM objects o WHERE o.uid = q.uid)
UNION ALL
SELECT o.uid, TRUE, o.finalizing & 1 = 0 AND EXISTS (SELECT 1 FROM owners w WHERE w.owner_uid = o.uid),
    o.kind IN ('` + object.Namespaces + `', '` + object.Definitions + `')
FROM objects o WHERE coalesce(o.deletion_cascade, o.uid) = $1 AND o.deletion_time IS NOT NULL`
	sumCascade = `
SELECT count(restored_as), CAST(coalesce(sum(size), 0) AS bigint), coalesce(max(removed_at), 0) FROM (
    SELECT restored_as, size, removed_at FROM archive WHERE uid = $1 AND cascade = uid
    UNION ALL
    SELECT restored_as, size, removed_at FROM (
        SELECT restored_as, size, removed_at FROM archive WHERE cascade = $1 AND cascade <> uid ORDER BY id DESC LIMIT 10000) AS newest
) AS counted`
)

// Root reads the root object of a cascade, without its body; false: it is
// neither stored nor archived. Cascades of a DeleteCollection have no root.
func Root(ctx context.Context, s sqldb.Sender, id string) (o object.Object, found bool, err error) {
	read := func(row sqldb.Row) error {
		o, found = object.Object{UID: RootUID(id)}, true
		return row.Scan(&o.Kind, &o.Namespace, &o.Name, &o.Revision)
	}
	var b sqldb.Batch
	b.Query(read, `SELECT kind, namespace, name, id FROM archive WHERE uid = $1`, string(RootUID(id)))
	b.Query(read, `SELECT kind, namespace, name, revision FROM objects WHERE uid = $1`, string(RootUID(id)))
	err = s.Send(ctx, &b)
	if o.Kind == object.Namespaces {
		o.Namespace = "" // the archive stores a namespace as inside itself
	}
	return o, found, err
}

// CountRemoved counts the removed objects of a cascade, without its root, up to a
// bound.
func CountRemoved(ctx context.Context, s sqldb.Sender, id string, most int64) (int64, error) {
	return count(ctx, s, `SELECT count(*) FROM (SELECT 1 FROM archive WHERE cascade = $1 AND cascade <> uid LIMIT $2) AS found`, id, most)
}

// CountBelow counts the dependents of those uids that are removed objects
// of a cascade, without its root, up to a bound.
func CountBelow(ctx context.Context, s sqldb.Sender, engine sqldb.Engine, id string, uids []types.UID, most int64) (int64, error) {
	return count(ctx, s, countBelow[engine], id, sqldb.List(engine, uids), most)
}

// CountUnrestored counts the names in a cascade that have no restored object,
// except the archive's row. It uses archive_cascade_idx, and the unique index on
// objects.uid for each row. The ServiceAccount "default" does not count: every namespace
// has one.
func CountUnrestored(ctx context.Context, s sqldb.Sender, id string, row int64) (int64, error) {
	return count(ctx, s, countUnrestored, id, row)
}

// Followed is the condition that a row a of the archive belongs to the cascade $1, is not its root, and was not
// restored.
const Followed = ` AND a.cascade = $1 AND a.cascade <> a.uid AND NOT EXISTS (SELECT 1 FROM objects b WHERE b.uid = a.uid)`

var countBelow = sqldb.WithLists(`
SELECT count(*) FROM (
    SELECT 1 FROM LIST($2, text) AS q JOIN archive a ON a.uid = q.value JOIN owners w ON w.owner_uid = q.value
    WHERE TRUE` + Followed + ` LIMIT $3) AS found`)

const countUnrestored = `
SELECT count(*) FROM (
    SELECT a.kind, a.namespace, a.name FROM (
        SELECT * FROM archive WHERE cascade = $1 AND cascade <> uid
        UNION ALL
        SELECT * FROM archive WHERE uid = $1 AND cascade = uid
    ) a LEFT JOIN objects o ON o.uid = a.restored_as
    WHERE (a.kind <> 'serviceaccounts' OR a.name <> 'default')` + Kept + `
    GROUP BY a.kind, a.namespace, a.name
    HAVING count(o.id) = 0 AND max(CASE WHEN a.id = $2 THEN 1 ELSE 0 END) = 0
) AS names`
