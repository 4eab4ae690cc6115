package store

import (
	"context"
	"slices"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
)

// Cascade is one deletion as a unit. Times are in Unix milliseconds.
type Cascade struct {
	ID        string
	Root      object.Object // its key and uid; of a DeleteCollection: the first that was removed
	Requester string
	RequestID string // the Audit-Id of the delete; empty: no request began the cascade
	StartedAt int64
	// FirstRemovedAt and LastRemovedAt are when the first and the last object were removed;
	// 0: none was. Of more than 10,000, FirstRemovedAt is that of the root, or of the newest 10,000.
	FirstRemovedAt, LastRemovedAt int64
	// Removed counts the objects in the archive. Remaining counts those that are known
	// to follow: DELETING ones, dependents of the root, and dependents of the 1,000
	// objects that were removed last.
	Removed, Remaining int64
	// Deleting counts those of Remaining that are DELETING.
	Deleting int64
	// Restored counts the removed objects that were restored, and Bytes is the size of all. Of more than
	// 10,000, Bytes may be half a minute old.
	Restored, Bytes int64
	// Purged counts the objects that clients purged from the archive.
	Purged int64
	// Held: the guard holds the deletion of the root.
	Held bool
}

// mostSummed is how many rows of a cascade sumCascade reads.
const mostSummed = 10_000

// Cascades returns the ids of cascades, at most limit: those under way, then the newest,
// of one namespace or of all (""). Those of a DeleteCollection have no root in the
// archive; they are found among the newest 2,000 removals.
func (r *Reader) Cascades(ctx context.Context, namespace string, limit int) ([]string, error) {
	var ids []string
	read := func(row sqldb.Row) error {
		var id string
		if err := row.Scan(&id); err != nil {
			return err
		}
		if len(ids) < limit && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
		return nil
	}
	var b sqldb.Batch
	b.Query(read, deletingCascades, namespace, limit)
	b.Query(read, recentCascades, namespace, limit)
	b.Query(read, rootCascades, namespace, limit)
	return ids, r.send(ctx, &b)
}

// QueuedCascades are the cascades that the collector still has work of, apart from
// DELETING objects.
func (r *Reader) QueuedCascades(ctx context.Context) (map[string]bool, error) {
	queued := map[string]bool{}
	err := r.rows(ctx, func(row sqldb.Row) error {
		var id string
		err := row.Scan(&id)
		queued[id] = true
		return err
	}, queuedCascades)
	return queued, err
}

// Purged counts the objects of a cascade that clients purged from the archive.
func (r *Reader) Purged(ctx context.Context, id string) (int64, error) {
	return r.count(ctx, `SELECT purged FROM archive_cascades WHERE id = $1`, id)
}

// Cascade reads one cascade; nil: there is none.
func (r *Reader) Cascade(ctx context.Context, id string) (*Cascade, error) {
	c := &Cascade{ID: id}
	found := false
	root := func(row sqldb.Row) error {
		if found {
			return nil
		}
		found = true
		var finalizing int64
		err := row.Scan((*string)(&c.Root.UID), &c.Root.Kind, &c.Root.Namespace, &c.Root.Name, &c.Requester, &c.RequestID, &c.StartedAt, &finalizing)
		c.Held = held(c.StartedAt, finalizing)
		return err
	}
	var b sqldb.Batch
	b.Query(root, cascadeRootArchived, id, string(RootOf(id)))
	b.Query(root, cascadeRootDeleting, id, string(RootOf(id)))
	b.Query(root, cascadeFirst, id)
	b.Query(func(row sqldb.Row) error { return row.Scan(&c.Restored, &c.Bytes, &c.LastRemovedAt, &c.FirstRemovedAt) }, sumCascade, id)
	add := func(into *int64) func(sqldb.Row) error {
		return func(row sqldb.Row) error {
			var n int64
			err := row.Scan(&n)
			*into += n
			return err
		}
	}
	b.Query(add(&c.Removed), countCascade, id)
	b.Query(add(&c.Deleting), countCascadeDeleting, id)
	b.Query(add(&c.Remaining), countCascadeBelow, id, string(RootOf(id)))
	b.Query(add(&c.Remaining), countCascadeNext, id)
	var bytes int64
	var restored bool
	b.Query(func(row sqldb.Row) error { return row.Scan(&bytes, &c.Purged, &restored) }, counted, id)
	if err := r.send(ctx, &b); err != nil || !found {
		return nil, err
	}
	if c.Removed > mostSummed {
		c.Bytes = max(c.Bytes, bytes)
		if restored {
			var err error
			if c.Restored, err = r.count(ctx, countRestored, id); err != nil {
				return nil, err
			}
		}
	}
	c.Remaining += c.Deleting
	if c.Root.Kind == object.Namespaces {
		c.Root.Namespace = "" // the archive stores a namespace as inside itself
	}
	if c.Root.UID == "" {
		c.Root.UID = RootOf(id)
	}
	return c, nil
}

const (
	// deletingCascades: objects_cascade_idx. A root has no deletion_cascade.
	deletingCascades = `
SELECT DISTINCT coalesce(deletion_cascade, uid) FROM objects
WHERE deletion_time IS NOT NULL AND ($1 = '' OR namespace = $1 OR kind = 'namespaces' AND name = $1) LIMIT $2`
	// recentCascades: the newest rows, by the primary key.
	recentCascades = `
SELECT a.cascade FROM (SELECT id, cascade, namespace FROM archive ORDER BY id DESC LIMIT 2000) AS a
WHERE ($1 = '' OR a.namespace = $1)` + kept + ` GROUP BY a.cascade ORDER BY max(a.id) DESC LIMIT $2`
	// rootCascades: archive_roots_idx.
	rootCascades = `
SELECT cascade FROM archive a WHERE substr(cascade, 1, length(uid)) = uid AND ($1 = '' OR namespace = $1)` + kept + ` ORDER BY id DESC LIMIT $2`

	cascadeRootArchived = `
SELECT uid, kind, namespace, name, coalesce(requester, actor), coalesce(request_id, ''), removed_at, 0 FROM archive a WHERE uid = $2 AND cascade = $1` + kept
	cascadeRootDeleting = `
SELECT uid, kind, namespace, name, coalesce(deletion_requester, deletion_actor, ''), coalesce(deletion_request_id, ''), deletion_time * 1000, finalizing FROM objects
WHERE uid = $2 AND deletion_time IS NOT NULL AND coalesce(deletion_cascade, uid) = $1`
	cascadeFirst = `
SELECT uid, kind, namespace, name, coalesce(requester, actor), coalesce(request_id, ''), removed_at, 0 FROM archive a WHERE cascade = $1 AND cascade <> uid` + kept + ` ORDER BY id LIMIT 1`

	countCascade = `
SELECT (SELECT count(*) FROM archive WHERE cascade = $1 AND cascade <> uid) + (SELECT count(*) FROM archive WHERE uid = $1 AND cascade = uid)`
	counted       = `SELECT bytes, purged, restored_at IS NOT NULL FROM archive_cascades WHERE id = $1`
	countRestored = `
SELECT (SELECT count(restored_as) FROM archive WHERE cascade = $1 AND cascade <> uid) + (SELECT count(restored_as) FROM archive WHERE uid = $1 AND cascade = uid)`
	countCascadeDeleting = `SELECT count(*) FROM objects WHERE coalesce(deletion_cascade, uid) = $1 AND deletion_time IS NOT NULL`
	countCascadeBelow    = `
SELECT count(*) FROM owners w JOIN objects o ON o.id = w.dependent WHERE w.owner_uid = $2 AND o.deletion_time IS NULL
    AND NOT EXISTS (SELECT 1 FROM objects r WHERE r.uid = $2 AND (r.deletion_time IS NULL OR coalesce(r.deletion_cascade, r.uid) <> $1))`
	countCascadeNext = `
SELECT count(*) FROM (SELECT uid FROM archive WHERE cascade = $1 AND cascade <> uid ORDER BY id DESC LIMIT 1000) AS last
    JOIN owners w ON w.owner_uid = last.uid JOIN objects o ON o.id = w.dependent WHERE o.deletion_time IS NULL
    AND NOT EXISTS (SELECT 1 FROM objects b WHERE b.uid = last.uid)`
	sumCascade = `
SELECT count(restored_as), CAST(coalesce(sum(size), 0) AS bigint), coalesce(max(removed_at), 0), coalesce(min(removed_at), 0) FROM (
    SELECT restored_as, size, removed_at FROM archive WHERE uid = $1 AND cascade = uid
    UNION ALL
    SELECT restored_as, size, removed_at FROM (
        SELECT restored_as, size, removed_at FROM archive WHERE cascade = $1 AND cascade <> uid ORDER BY id DESC LIMIT 10000) AS newest
) AS counted`
)
