package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
)

const (
	expireStep         = 500     // rows of the archive that leave per transaction
	countStep          = 2000    // rows that are counted, and cascades that are chosen, per transaction
	defaultArchiveSize = 1 << 30 // bytes
	// holdFor is how long a cascade stays after a restore of it has written: the restore finds
	// the rest.
	holdFor = time.Hour
	// always is in archive_cascades.leaving for a cascade that leaves while it runs.
	always = math.MaxInt64
)

// A cascade leaves the archive whole, in two parts. One transaction chooses it and marks it as leaving:
// from then on it is not listed and cannot be restored. The next transactions delete its rows,
// in steps (sweep); the first run after a crash goes on with them. docs/spec/archive.md has
// the rules and the races.

// expiry is one run of expire.
type expiry struct {
	*Store
	windows map[string]time.Duration // by namespace
	queued  map[string]bool          // cascades that the collector has work of; nil: not read yet
}

// expire counts the new rows of the archive, and lets cascades leave: first those whose time is over,
// then the oldest ones of the largest namespaces while the archive is larger than
// MaxBytes. It works in small steps, each a transaction between two batches of the
// writer.
func (s *Store) expire(ctx context.Context) error {
	x := &expiry{Store: s, windows: map[string]time.Duration{}}
	for _, part := range []func(context.Context) error{x.sweep, x.count, x.byAge, x.bySize, s.expireNotes} {
		if err := part(ctx); err != nil {
			return fmt.Errorf("expire archive: %w", err)
		}
	}
	return nil
}

// count adds the new rows to the sums of their cascades.
func (x *expiry) count(ctx context.Context) error {
	for done := false; !done; {
		if found, err := x.db.Row(ctx, anyUncounted, nil, new(int64)); err != nil || !found {
			return err
		}
		err := x.Transact(ctx, func(tx *Tx) (err error) {
			done, err = tx.countArchived(ctx)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// countArchived counts one step. It reports whether all rows are counted.
func (t *Tx) countArchived(ctx context.Context) (done bool, err error) {
	var n, end int64
	if _, err := t.one(ctx, []any{&n, &end}, uncounted, int64(countStep)); err != nil || n == 0 {
		return true, err
	}
	var b sqldb.Batch
	b.Exec(countCascades[t.engine], end)
	b.Exec(countSpans, end)
	b.Exec(setCounted, end)
	return n < countStep, t.sendAll(ctx, &b)
}

// leaver is a cascade that may leave.
type leaver struct {
	id                        string
	objects, bytes, removedAt int64
	busy, spans               bool
}

// leavers reads cascades. Those that the collector has work of are busy.
func (x *expiry) leavers(ctx context.Context, tx *Tx, statement, namespace string, args ...any) (all []leaver, err error) {
	args = append([]any{namespace, x.now().Add(-holdFor).UnixMilli()}, args...)
	err = tx.rows(ctx, func(row sqldb.Row) error {
		var l leaver
		err := row.Scan(&l.id, &l.objects, &l.bytes, &l.removedAt, &l.busy, &l.spans)
		l.busy = l.busy || x.queued[l.id]
		all = append(all, l)
		return err
	}, statement, args...)
	return all, err
}

// choose calls fn in transactions that have counted all rows, until it is done, and
// sweeps after each.
func (x *expiry) choose(ctx context.Context, fn func(*Tx) (done bool, err error)) error {
	// Work that the collector gets later comes with a removal, which is counted.
	if x.queued == nil {
		var err error
		if x.queued, err = x.Reader().QueuedCascades(ctx); err != nil {
			return err
		}
	}
	for done := false; !done; {
		err := x.Transact(ctx, func(tx *Tx) error {
			counted, err := tx.countArchived(ctx)
			if err == nil && counted {
				done, err = fn(tx)
			}
			return err
		})
		if err == nil {
			err = x.sweep(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// byAge lets cascades leave whose time is over.
func (x *expiry) byAge(ctx context.Context) error {
	oldest := map[string]int64{}
	err := x.Reader().rows(ctx, func(row sqldb.Row) error {
		var namespace string
		var at int64
		err := row.Scan(&namespace, &at)
		oldest[namespace] = at
		return err
	}, oldestByNamespace)
	if err != nil {
		return err
	}
	for namespace, at := range oldest {
		window, err := x.window(ctx, x.Reader(), namespace)
		if err != nil {
			return err
		}
		before := x.now().Add(-window).UnixMilli()
		if at > before {
			continue
		}
		var last leaver
		err = x.choose(ctx, func(tx *Tx) (bool, error) {
			found, err := x.leavers(ctx, tx, dueCascades, namespace, before, last.removedAt, last.id, int64(countStep))
			if err != nil || len(found) == 0 {
				return true, err
			}
			last = found[len(found)-1]
			var due []string
			for _, l := range found {
				if over, err := x.over(ctx, tx, l); err != nil {
					return false, err
				} else if over {
					due = append(due, l.id)
				}
			}
			return len(found) < countStep, tx.markLeaving(ctx, due, tx.revision)
		})
		if err != nil {
			return fmt.Errorf("of namespace %q: %w", namespace, err)
		}
	}
	return nil
}

// over reports whether a cascade whose time is over in its own namespace has ended, and its time is
// over in the others too.
func (x *expiry) over(ctx context.Context, tx *Tx, l leaver) (bool, error) {
	if l.busy || !l.spans {
		return !l.busy, nil
	}
	var others []string
	err := tx.rows(ctx, func(row sqldb.Row) error {
		others = append(others, "")
		return row.Scan(&others[len(others)-1])
	}, spansOf, l.id)
	if err != nil {
		return false, err
	}
	window, err := x.longest(ctx, &tx.Reader, others)
	return l.removedAt <= x.now().Add(-window).UnixMilli(), err
}

// markLeaving marks the rows of cascades up to a revision as leaving.
func (t *Tx) markLeaving(ctx context.Context, ids []string, upTo int64) error {
	if len(ids) == 0 {
		return nil
	}
	var b sqldb.Batch
	b.Exec(markLeaving[t.engine], sqldb.List(t.engine, ids), upTo)
	return t.sendAll(ctx, &b)
}

// sweep deletes the rows that are leaving, step by step.
func (s *Store) sweep(ctx context.Context) error {
	for more := true; more; {
		if found, err := s.db.Row(ctx, anyLeaving, nil, new(int64)); err != nil || !found {
			return err
		}
		err := s.Transact(ctx, func(tx *Tx) (err error) {
			more, err = tx.sweep(ctx)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sweep deletes one step of the rows that are leaving. It reports whether there was anything to
// do.
func (t *Tx) sweep(ctx context.Context) (more bool, err error) {
	var ids []string
	stays := false // one keeps its row: it left while it ran
	size := int64(0)
	err = t.rows(ctx, func(row sqldb.Row) error {
		var id string
		var objects int64
		var keeps bool
		err := row.Scan(&id, &objects, &keeps)
		if size < expireStep {
			ids, size, more, stays = append(ids, id), size+objects, more || !keeps, stays || keeps
		}
		return err
	}, leavingCascades, int64(expireStep), int64(always))
	if err != nil || len(ids) == 0 {
		return false, err
	}
	list := sqldb.List(t.engine, ids)
	var rows []archivedRow
	if err := t.rows(ctx, scanForgotten(&rows), leavingRows[t.engine], list, int64(expireStep)); err != nil {
		return false, err
	}
	if len(rows) == int(size) && !stays { // whole cascades: their sums go with them
		var b sqldb.Batch
		b.Exec(deleteCascades[t.engine], list)
		return true, errors.Join(t.sendAll(ctx, &b), t.forget(ctx, rows))
	}
	if err := t.forget(ctx, rows); err != nil || len(rows) == expireStep {
		return true, err // there may be more of them
	}
	var b sqldb.Batch
	b.Exec(hasLeft[t.engine], list, int64(always), t.Now.Add(-holdFor).UnixMilli())
	b.Exec(hasOthers[t.engine], list, int64(always))
	return more || len(rows) > 0, t.sendAll(ctx, &b)
}

// ForgetArchived purges rows from the archive: it removes them now, and returns how many there
// were. Their cascades remember how many. Their bodies are deleted now, or by the compaction that they still wait
// for.
func (s *Store) ForgetArchived(ctx context.Context, ids []int64) (forgotten int, err error) {
	for step := range slices.Chunk(ids, expireStep) {
		var rows []archivedRow
		err := s.Transact(ctx, func(tx *Tx) error {
			list := sqldb.List(tx.engine, step)
			var b sqldb.Batch
			b.Query(scanForgotten(&rows), forgottenByID[tx.engine], list)
			b.Exec(countPurged[tx.engine], list)
			if err := tx.sendAll(ctx, &b); err != nil {
				return err
			}
			return tx.forget(ctx, rows)
		})
		if err != nil {
			return forgotten, fmt.Errorf("purge archive: %w", err)
		}
		forgotten += len(rows)
	}
	return forgotten, nil
}

// archivedRow is a row that leaves: body is the revision of its body, 0 if it has none, and
// replaced the revision that replaced it.
type archivedRow struct{ id, body, size, replaced int64 }

func scanForgotten(into *[]archivedRow) func(sqldb.Row) error {
	return func(row sqldb.Row) error {
		var r archivedRow
		err := row.Scan(&r.id, &r.body, &r.size, &r.replaced)
		*into = append(*into, r)
		return err
	}
}

// forget deletes rows. archive.go says why a body is deleted only once the change
// that replaced it is compacted.
func (t *Tx) forget(ctx context.Context, rows []archivedRow) error {
	if len(rows) == 0 {
		return nil
	}
	var ids, bodies []int64
	var bytes int64
	for _, r := range rows {
		if r.body != 0 && r.replaced <= t.compacted {
			bodies = append(bodies, r.body)
		}
		ids, bytes = append(ids, r.id), bytes+r.size
	}
	var b sqldb.Batch
	b.Exec(deleteBodies[t.engine], sqldb.List(t.engine, bodies))
	b.Exec(deleteArchived[t.engine], sqldb.List(t.engine, ids))
	b.Exec(dropBytes, bytes)
	return t.sendAll(ctx, &b)
}

// Expiries reads when the time of cascades is over, in Unix milliseconds, if they remove no more. of has any
// removed object of each, by the cascade's id.
func (s *Store) Expiries(ctx context.Context, of map[string]*Archived) (map[string]int64, error) {
	type cascade struct {
		namespaces []string
		removedAt  int64
	}
	all := make(map[string]*cascade, len(of))
	var b sqldb.Batch
	for id, a := range of {
		c := &cascade{[]string{a.Namespace}, a.RemovedAt}
		all[id] = c
		b.Query(func(row sqldb.Row) error {
			var namespace string
			var removedAt int64
			err := row.Scan(&namespace, &removedAt)
			c.namespaces, c.removedAt = append(c.namespaces, namespace), max(c.removedAt, removedAt)
			return err
		}, timesOf, id)
	}
	r := s.Reader()
	if err := r.send(ctx, &b); err != nil {
		return nil, fmt.Errorf("read expiries: %w", err)
	}
	x := &expiry{Store: s, windows: map[string]time.Duration{}}
	until := make(map[string]int64, len(of))
	for id, c := range all {
		longest, err := x.longest(ctx, r, c.namespaces)
		if err != nil {
			return nil, err
		}
		until[id] = c.removedAt + longest.Milliseconds()
	}
	return until, nil
}

// longest is the longest window of some namespaces.
func (x *expiry) longest(ctx context.Context, r *Reader, namespaces []string) (longest time.Duration, err error) {
	for _, namespace := range namespaces {
		window, unread := x.window(ctx, r, namespace)
		longest, err = max(longest, window), errors.Join(err, unread)
	}
	return longest, err
}

// window is how long the archive keeps what was removed from a namespace.
func (x *expiry) window(ctx context.Context, r *Reader, namespace string) (time.Duration, error) {
	if window, known := x.windows[namespace]; known {
		return window, nil
	}
	var body []byte
	if _, err := r.one(ctx, []any{&body}, namespaceBody, namespace); err != nil {
		return 0, err
	}
	x.windows[namespace] = x.archiveWindow(namespace, body)
	return x.windows[namespace], nil
}

// archiveWindow is how long the archive keeps objects of a namespace. An invalid
// annotation is ignored: a typing mistake must not empty the archive.
func (s *Store) archiveWindow(namespace string, body []byte) time.Duration {
	window := s.opts.Archive.For
	if window <= 0 {
		window = defaultArchiveFor
	}
	if len(body) == 0 {
		return window
	}
	m, err := object.ParseMeta(body)
	if err != nil {
		s.log.Warn("namespace cannot be read: its archive is kept for the default time", "namespace", namespace, "error", err)
		return window
	}
	if d, ok := lifecycle.ArchiveWindow(m.Annotations); ok {
		return d
	}
	return window
}

// expireNotes removes rows that only archived objects needed which are gone now:
// dropped references and names of kinds. It looks for them before it begins a
// transaction, because usually there are none.
func (s *Store) expireNotes(ctx context.Context) error {
	var b sqldb.Batch
	var one int64
	found, err := s.db.Row(ctx, anyDropped, nil, &one)
	if err != nil {
		return fmt.Errorf("expire dropped references: %w", err)
	}
	if found {
		b.Exec(forgetDropped)
	}
	rows, err := s.db.Query(ctx, unusedKinds, s.now().Add(-s.archiveWindow("", nil)).UnixMilli())
	if err != nil {
		return fmt.Errorf("expire archived kinds: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var storage string
		var removedAt int64
		if err := rows.Scan(&storage, &removedAt); err != nil {
			return fmt.Errorf("expire archived kinds: %w", err)
		}
		b.Exec(forgetKind, storage, removedAt)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil || b.Len() == 0 {
		return err
	}
	if err := s.Transact(ctx, func(tx *Tx) error { return tx.sendAll(ctx, &b) }); err != nil {
		return fmt.Errorf("expire notes about archived objects: %w", err)
	}
	return nil
}
