package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/history"
)

// Earlier versions of objects: who made them, and states from before the log. See package history.

// HistoryOptions configure the history of objects.
type HistoryOptions struct {
	// For is how long a version is kept after it was replaced; a Namespace's annotation
	// lifecycle.exeunt.dev/history-for overrides it. 0 means that none is kept.
	For time.Duration
	// MaxBytes bounds the history. Default 1 GiB.
	MaxBytes int64
	// Exclude has the storage names of the kinds that are left out.
	Exclude []string
}

// Version and Author are those of package history.
type (
	Version = history.Version
	Author  = history.Author
)

type authorKey struct{}

// WithAuthor returns a context whose writes have an author in the log. Nothing is decided by it.
func WithAuthor(ctx context.Context, a Author) context.Context {
	return context.WithValue(ctx, authorKey{}, a.String())
}

func authorOf(ctx context.Context) string {
	author, _ := ctx.Value(authorKey{}).(string)
	return author
}

// by is the author of an effect as a column: a string, or nil. Without a request it is the part of the server that
// deletes.
func (f *effect) by() any {
	switch {
	case f.author != "":
		return f.author
	case f.actor != "":
		return Author{User: f.actor, RequestID: f.request}.String()
	}
	return nil
}

func authorsOf(run []*effect) []*string {
	authors := make([]*string, len(run))
	for i, f := range run {
		authors[i] = nullable[string](f.by())
	}
	return authors
}

func newHistory(s *Store) *history.History {
	o := s.opts.History
	return history.New(history.Options{
		DB: s.db, Now: s.now, Logger: s.log, Keys: s.opts.Keys, For: o.For, MaxBytes: o.MaxBytes, Exclude: o.Exclude,
		Transact: func(ctx context.Context, fn func(*history.Tx) error) error {
			return s.Transact(ctx, func(t *Tx) error { return fn(t.history()) })
		},
		Compact: func(b *sqldb.Batch, from, to int64) {
			b.Exec(compactBodies, from, to)
			b.Exec(compactTombstones, from, to)
			b.Exec(setCompacted, to)
		},
	})
}

func (t *Tx) history() *history.Tx {
	return &history.Tx{Sender: t, Engine: t.engine, Revision: t.revision, Moved: t.moved, Sealing: t.sealing}
}

// History is what Run keeps of earlier versions: its settings and counters.
func (s *Store) History() *history.History { return s.past }

// RevisionAt returns the last revision of the second in which a time lies. Error: Expired if the history does not
// reach back to it.
func (s *Store) RevisionAt(ctx context.Context, at time.Time) (int64, error) {
	snapshot, err := s.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	defer snapshot.Close()
	return s.past.RevisionAt(ctx, snapshot, at)
}

// RevisionOf reads a version, or a time in RFC 3339, which means the end of its second and must be over.
func (s *Store) RevisionOf(ctx context.Context, when string, now time.Time) (int64, error) {
	revision, at, err := history.ParseWhen(when, now)
	if err != nil || revision != 0 {
		return revision, err
	}
	return s.RevisionAt(ctx, at)
}

// GetAt reads an object as it was at a revision. Errors: NotFound; TooLargeVersion; Expired if that is not known. One
// object may be known where the state of its kind is not whole.
func (s *Store) GetAt(ctx context.Context, key object.Key, revision int64) (o object.Object, err error) {
	if err := checkKey(key); err != nil {
		return o, err
	}
	snapshot, err := s.Snapshot(ctx)
	if err != nil {
		return o, err
	}
	defer snapshot.Close()
	l := &Listing{revision: revision, request: ListRequest{Kind: key.Kind, Namespace: key.Namespace, Past: true}}
	_, missing := l.checkRevision(ctx, snapshot)
	if missing != nil && !object.Is(missing, object.Expired) {
		return o, missing
	}
	err = s.versions(ctx, snapshot, key, revision+1, func(uid string, v Version) bool {
		if v.Until == 0 || v.Until > revision { // else it was removed while nothing was kept
			o = object.Object{Key: key, UID: types.UID(uid), Revision: v.Revision, Body: v.Body}
		}
		return false
	})
	if err == nil && missing != nil && o.Body == nil {
		o, err = s.past.Archived(ctx, snapshot, key, revision)
	}
	if err == nil && o.Body == nil {
		err = cmp.Or(missing, notFound(key))
	}
	return o, err
}

// checkPast refuses a state that the history does not have whole.
func (l *Listing) checkPast(ctx context.Context, s *Snapshot) error {
	bound, err := history.Bound(ctx, s, l.request.Kind, l.request.Namespace)
	if err == nil && l.revision < bound {
		return object.Errorf(object.Expired, "the history of %s does not reach back to version %d: it begins at version %d", l.request.Kind, l.revision, bound)
	}
	if err == nil {
		_, err = sqldb.First(ctx, s, []any{&l.moved}, `SELECT moved FROM revision`)
	}
	return err
}

// readPast is readHeads for a state that is in the history.
func (l *Listing) readPast(ctx context.Context, s *Snapshot, args []any, length int) error {
	return sqldb.Each(ctx, s, func(row sqldb.Row) error {
		l.run = append(l.run, object.Object{Key: object.Key{Kind: l.request.Kind}})
		l.rows = append(l.rows, 0)
		o := &l.run[len(l.run)-1]
		return row.Scan(&o.Namespace, &o.Name, (*string)(&o.UID), &o.Revision, &l.rows[len(l.rows)-1])
	}, listPast, append(args, l.revision, int64(length), l.moved)...)
}

// listPast is listAt for a revision from before the log, $6: the heads that have not changed since, what the log says
// about those that have, and the rows of the history with a version of that time, each object in one of them. The log
// begins after $8. Indexes: unique index on objects; changes_kind_revision_idx; history_key_idx.
const listPast = `
SELECT u.namespace, u.name, u.uid, u.revision, u.id
FROM (
    SELECT o.namespace, o.name, o.uid, o.revision, 0 AS id
    FROM objects o
    WHERE o.kind = $1 AND (o.namespace, o.name) > ($2, $3) AND o.namespace <= $4
      AND ($5 = '' OR o.name = $5) AND o.revision <= $6
    UNION ALL
    SELECT h.namespace, h.name, h.uid, h.previous, 0
    FROM changes h
    WHERE h.kind = $1 AND h.revision > $8 AND h.previous <= $6
      AND (h.namespace, h.name) > ($2, $3) AND h.namespace <= $4
      AND ($5 = '' OR h.name = $5)
    UNION ALL
    SELECT e.namespace, e.name, e.uid, e.first, e.id
    FROM history e
    WHERE e.kind = $1 AND (e.namespace, e.name) > ($2, $3) AND e.namespace <= $4
      AND ($5 = '' OR e.name = $5) AND e.first <= $6 AND e.until > $6
) u
ORDER BY u.namespace, u.name
LIMIT $7`

// fillPast reads those objects of a part of the run that are in the history.
func (l *Listing) fillPast(ctx context.Context, s *Snapshot, from, to int) error {
	var picks []history.Pick
	var places []int
	for i := from; i < min(to, len(l.rows)); i++ { // without rows the state is not in the history
		if l.rows[i] != 0 {
			picks, places = append(picks, history.Pick{Row: l.rows[i], Revision: l.revision}), append(places, i)
		}
	}
	if len(picks) == 0 {
		return nil
	}
	found, err := l.store.past.Objects(ctx, s, picks)
	if err != nil {
		return err
	}
	for i, at := range places {
		l.run[at].Revision, l.run[at].Body = found[i].Revision, found[i].Body
	}
	return nil
}

// versionsInLog reads the versions of a name in the log, or the newest ones, from before revision $4; the newest first. It
// follows previous from the head and from each removal: primary keys, unique index on objects, changes_removed_idx. It leaves
// out what was purged.
const versionsInLog = `
WITH RECURSIVE line (revision) AS (
    SELECT o.revision FROM objects o WHERE o.kind = $1 AND o.namespace = $2 AND o.name = $3
    UNION ALL
    SELECT c.revision FROM changes c WHERE c.type = 3 AND c.kind = $1 AND c.namespace = $2 AND c.name = $3 AND c.revision > (SELECT moved FROM revision)
    UNION ALL
    SELECT c.previous FROM line l CROSS JOIN changes c WHERE c.revision = l.revision AND l.revision > (SELECT moved FROM revision) AND c.previous IS NOT NULL
)
SELECT c.revision, c.type, coalesce(c.at, 0), coalesce(c.author, ''), c.uid, c.body
FROM line l CROSS JOIN changes c
WHERE l.revision < $4 AND c.revision = l.revision
    AND NOT EXISTS (SELECT 1 FROM history_bounds b WHERE b.kind = '!purged' AND b.namespace = c.uid AND b.revision >= c.revision)
ORDER BY l.revision DESC`

var errEnough = errors.New("no more versions are wanted")

// Versions calls visit with the versions of a name from before a revision, the newest first, until it returns false:
// those of all objects that had the name, as far as the history has them.
func (s *Store) Versions(ctx context.Context, key object.Key, before int64, visit func(uid string, v Version) bool) error {
	snapshot, err := s.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer snapshot.Close()
	return s.versions(ctx, snapshot, key, before, visit)
}

func (s *Store) versions(ctx context.Context, snapshot *Snapshot, key object.Key, before int64, visit func(uid string, v Version) bool) error {
	err := sqldb.Each(ctx, snapshot, func(row sqldb.Row) error {
		var v Version
		o := object.Object{Key: key}
		if err := row.Scan(&v.Revision, &v.Type, &v.At, &v.Author, (*string)(&o.UID), &o.Body); err != nil {
			return err
		}
		if v.Type != Removed {
			if err := s.opts.Keys.Unseal(&o); err != nil {
				return err
			}
			v.Body = o.Body
		}
		if !visit(string(o.UID), v) {
			return errEnough
		}
		return nil
	}, versionsInLog, key.Kind, key.Namespace, key.Name, before)
	if err == nil {
		err = s.past.Versions(ctx, snapshot, key, before, visit)
	}
	if err != nil && !errors.Is(err, errEnough) {
		return fmt.Errorf("read the versions of %s: %w", key, err)
	}
	return nil
}
