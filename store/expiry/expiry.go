// Package expiry removes from the archive what has been there long enough: cascades whose time is
// over, and the oldest ones of the namespaces that use more than their share of its size.
//
// A cascade leaves the archive whole, in two parts. One transaction chooses it and marks it as leaving:
// from then on it is not listed and cannot be restored. The next transactions delete its rows,
// in steps (sweep); the first run after a crash goes on with them. docs/spec/archive.md has
// the rules and the races. Begin at [Expiry.Run].
package expiry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/cascades"
)

const (
	// Step is how many rows of the archive leave per transaction.
	Step = 500
	// CountStep is how many rows are counted, and cascades are chosen, per transaction.
	CountStep = 2000

	defaultFor  = 24 * time.Hour // for what is in the archive while it is switched off
	defaultSize = 1 << 30        // bytes
	// holdFor is how long a cascade stays after a restore of it has written: the restore finds
	// the rest.
	holdFor = time.Hour
	// always is in archive_cascades.leaving for a cascade that leaves while it runs.
	always = math.MaxInt64
)

// Options are what an Expiry needs.
type Options struct {
	DB *sqldb.DB
	// Transact runs fn in a write transaction, which holds the lock on the revision.
	Transact func(ctx context.Context, fn func(*Tx) error) error
	Now      func() time.Time
	Logger   *slog.Logger
	// For is how long the archive keeps what a Namespace sets no time for. 0: 24 hours.
	For time.Duration
	// MaxBytes bounds the bodies. 0: 1 GiB.
	MaxBytes int64
}

// Tx is a write transaction.
type Tx struct {
	sqldb.Sender
	Engine              sqldb.Engine
	Now                 time.Time
	Revision, Compacted int64
	// OnEvict is called before cascades are evicted. It may be nil.
	OnEvict func(context.Context, Eviction) error
	// OnPurge is called with the rows that are purged, before they are deleted. It may be nil.
	OnPurge func(ctx context.Context, ids []int64) error
}

// Expiry removes cascades from the archive.
type Expiry struct {
	Options
	evicted atomic.Int64
}

// New makes an Expiry.
func New(o Options) *Expiry {
	if o.For <= 0 {
		o.For = defaultFor
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = defaultSize
	}
	return &Expiry{Options: o}
}

// run is one run of an Expiry.
type run struct {
	*Expiry
	windows map[string]time.Duration // by namespace
	queued  map[string]bool          // cascades that the collector has work of; nil if not read yet
}

// Run counts the new rows of the archive, and lets cascades leave: first those whose time is over,
// then the oldest ones of the largest namespaces while the archive is larger than
// MaxBytes. It works in small steps, each a transaction between two batches of the
// writer.
func (e *Expiry) Run(ctx context.Context) error {
	x := &run{Expiry: e, windows: map[string]time.Duration{}}
	for _, part := range []func(context.Context) error{x.sweep, x.Count, x.byAge, x.bySize, x.notes} {
		if err := part(ctx); err != nil {
			return fmt.Errorf("expire archive: %w", err)
		}
	}
	return nil
}

// Count adds the new rows to the sums of their cascades.
func (e *Expiry) Count(ctx context.Context) error {
	for done := false; !done; {
		if found, err := e.DB.Row(ctx, anyUncounted, nil, new(int64)); err != nil || !found {
			return err
		}
		err := e.Transact(ctx, func(tx *Tx) (err error) {
			done, err = tx.Count(ctx)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Count counts one step. It reports whether all rows are counted.
func (t *Tx) Count(ctx context.Context) (done bool, err error) {
	var n, end int64
	if _, err := sqldb.First(ctx, t, []any{&n, &end}, uncounted, int64(CountStep)); err != nil || n == 0 {
		return true, err
	}
	var b sqldb.Batch
	b.Exec(countCascades[t.Engine], end)
	b.Exec(countSpans, end)
	b.Exec(setCounted, end)
	return n < CountStep, t.Send(ctx, &b)
}

// leaver is a cascade that may leave.
type leaver struct {
	id                        string
	objects, bytes, removedAt int64
	busy, spans               bool
}

// leavers reads cascades. Those that the collector has work of are busy.
func (x *run) leavers(ctx context.Context, tx *Tx, statement, namespace string, args ...any) (all []leaver, err error) {
	args = append([]any{namespace, x.Now().Add(-holdFor).UnixMilli()}, args...)
	err = sqldb.Each(ctx, tx, func(row sqldb.Row) error {
		var l leaver
		err := row.Scan(&l.id, &l.objects, &l.bytes, &l.removedAt, &l.busy, &l.spans)
		l.busy = l.busy || x.queued[l.id]
		all = append(all, l)
		return err
	}, statement, args...)
	return all, err
}

// choose is Choose, when it is known which cascades the collector has work of.
func (x *run) choose(ctx context.Context, fn func(*Tx) (done bool, err error)) error {
	// Work that the collector gets later comes with a removal, which is counted.
	if x.queued == nil {
		var err error
		if x.queued, err = cascades.Queued(ctx, x.DB); err != nil {
			return err
		}
	}
	return x.Choose(ctx, fn)
}

// Choose calls fn in transactions that have counted all rows, until it is done, and
// sweeps after each.
func (e *Expiry) Choose(ctx context.Context, fn func(*Tx) (done bool, err error)) error {
	for done := false; !done; {
		err := e.Transact(ctx, func(tx *Tx) error {
			counted, err := tx.Count(ctx)
			if err == nil && counted {
				done, err = fn(tx)
			}
			return err
		})
		if err == nil {
			err = e.sweep(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// byAge lets cascades leave whose time is over.
func (x *run) byAge(ctx context.Context) error {
	oldest := map[string]int64{}
	if err := sqldb.Each(ctx, x.DB, sqldb.Pairs(oldest), oldestByNamespace); err != nil {
		return err
	}
	for namespace, at := range oldest {
		window, err := x.window(ctx, x.DB, namespace)
		if err != nil {
			return err
		}
		before := x.Now().Add(-window).UnixMilli()
		if at > before {
			continue
		}
		var last leaver
		err = x.choose(ctx, func(tx *Tx) (bool, error) {
			found, err := x.leavers(ctx, tx, dueCascades, namespace, before, last.removedAt, last.id, int64(CountStep))
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
			return len(found) < CountStep, tx.MarkLeaving(ctx, due, tx.Revision)
		})
		if err != nil {
			return fmt.Errorf("of namespace %q: %w", namespace, err)
		}
	}
	return nil
}

// over reports whether a cascade whose time is over in its own namespace has ended, and its time is
// over in the others too.
func (x *run) over(ctx context.Context, tx *Tx, l leaver) (bool, error) {
	if l.busy || !l.spans {
		return !l.busy, nil
	}
	others, err := sqldb.Column[string](ctx, tx, spansOf, l.id)
	if err != nil {
		return false, err
	}
	window, err := x.longest(ctx, tx, others)
	return l.removedAt <= x.Now().Add(-window).UnixMilli(), err
}

// MarkLeaving marks the rows of cascades up to a revision as leaving.
func (t *Tx) MarkLeaving(ctx context.Context, ids []string, upTo int64) error {
	if len(ids) == 0 {
		return nil
	}
	var b sqldb.Batch
	b.Exec(markLeaving[t.Engine], sqldb.List(t.Engine, ids), upTo)
	return t.Send(ctx, &b)
}

// sweep deletes the rows that are leaving, step by step.
func (e *Expiry) sweep(ctx context.Context) error {
	for more := true; more; {
		if found, err := e.DB.Row(ctx, anyLeaving, nil, new(int64)); err != nil || !found {
			return err
		}
		err := e.Transact(ctx, func(tx *Tx) (err error) {
			more, err = tx.Sweep(ctx)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Sweep deletes one step of the rows that are leaving. It reports whether there was anything to
// do.
func (t *Tx) Sweep(ctx context.Context) (more bool, err error) {
	var ids []string
	stays := false // one keeps its row: it left while it ran
	size := int64(0)
	err = sqldb.Each(ctx, t, func(row sqldb.Row) error {
		var id string
		var objects int64
		var keeps bool
		err := row.Scan(&id, &objects, &keeps)
		if size < Step {
			ids, size, more, stays = append(ids, id), size+objects, more || !keeps, stays || keeps
		}
		return err
	}, leavingCascades, int64(Step), int64(always))
	if err != nil || len(ids) == 0 {
		return false, err
	}
	list := sqldb.List(t.Engine, ids)
	var rows []archivedRow
	if err := sqldb.Each(ctx, t, scanForgotten(&rows), leavingRows[t.Engine], list, int64(Step)); err != nil {
		return false, err
	}
	if len(rows) == int(size) && !stays { // whole cascades: their sums go with them
		var b sqldb.Batch
		b.Exec(deleteCascades[t.Engine], list)
		return true, errors.Join(t.Send(ctx, &b), t.forget(ctx, rows))
	}
	if err := t.forget(ctx, rows); err != nil || len(rows) == Step {
		return true, err // there may be more of them
	}
	var b sqldb.Batch
	b.Exec(hasLeft[t.Engine], list, int64(always), t.Now.Add(-holdFor).UnixMilli())
	b.Exec(hasOthers[t.Engine], list, int64(always))
	return more || len(rows) > 0, t.Send(ctx, &b)
}

// Purge removes rows from the archive now, and returns how many there
// were. Their cascades remember how many. Their bodies are deleted now, or by the compaction that they still wait
// for.
func (e *Expiry) Purge(ctx context.Context, ids []int64) (forgotten int, err error) {
	for step := range slices.Chunk(ids, Step) {
		var rows []archivedRow
		err := e.Transact(ctx, func(tx *Tx) error {
			list := sqldb.List(tx.Engine, step)
			var b sqldb.Batch
			b.Query(scanForgotten(&rows), forgottenByID[tx.Engine], list)
			b.Exec(countPurged[tx.Engine], list)
			if err := tx.Send(ctx, &b); err != nil {
				return err
			}
			if tx.OnPurge != nil {
				if err := tx.OnPurge(ctx, step); err != nil {
					return err
				}
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
	return sqldb.Into(into, func(r *archivedRow) []any { return []any{&r.id, &r.body, &r.size, &r.replaced} })
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
		if r.body != 0 && r.replaced <= t.Compacted {
			bodies = append(bodies, r.body)
		}
		ids, bytes = append(ids, r.id), bytes+r.size
	}
	var b sqldb.Batch
	b.Exec(deleteBodies[t.Engine], sqldb.List(t.Engine, bodies))
	b.Exec(deleteArchived[t.Engine], sqldb.List(t.Engine, ids))
	b.Exec(dropBytes, bytes)
	return t.Send(ctx, &b)
}

// Removal is where and when an object was removed.
type Removal struct {
	Namespace string
	At        int64 // in Unix milliseconds
}

// Until reads when the time of cascades is over, in Unix milliseconds, if they remove no more. of has any
// removal of each, by the cascade's id.
func (e *Expiry) Until(ctx context.Context, of map[string]Removal) (map[string]int64, error) {
	namespaces, until := make(map[string][]string, len(of)), make(map[string]int64, len(of))
	var b sqldb.Batch
	for id, first := range of {
		namespaces[id], until[id] = []string{first.Namespace}, first.At
		b.Query(func(row sqldb.Row) error {
			var r Removal
			err := row.Scan(&r.Namespace, &r.At)
			namespaces[id], until[id] = append(namespaces[id], r.Namespace), max(until[id], r.At)
			return err
		}, timesOf, id)
	}
	if err := e.DB.Send(ctx, &b); err != nil {
		return nil, fmt.Errorf("read expiries: %w", err)
	}
	x := &run{Expiry: e, windows: map[string]time.Duration{}}
	for id := range of {
		longest, err := x.longest(ctx, e.DB, namespaces[id])
		if err != nil {
			return nil, err
		}
		until[id] += longest.Milliseconds()
	}
	return until, nil
}

// longest is the longest window of some namespaces.
func (x *run) longest(ctx context.Context, s sqldb.Sender, namespaces []string) (longest time.Duration, err error) {
	for _, namespace := range namespaces {
		window, unread := x.window(ctx, s, namespace)
		longest, err = max(longest, window), errors.Join(err, unread)
	}
	return longest, err
}

// window is how long the archive keeps what was removed from a namespace.
func (x *run) window(ctx context.Context, s sqldb.Sender, namespace string) (time.Duration, error) {
	if window, known := x.windows[namespace]; known {
		return window, nil
	}
	var body []byte
	if _, err := sqldb.First(ctx, s, []any{&body}, namespaceBody, namespace); err != nil {
		return 0, err
	}
	x.windows[namespace] = x.windowOf(namespace, body)
	return x.windows[namespace], nil
}

// windowOf is how long the archive keeps objects of the namespace with a body. An invalid
// annotation is ignored: a typing mistake must not empty the archive.
func (e *Expiry) windowOf(namespace string, body []byte) time.Duration {
	if len(body) == 0 {
		return e.For
	}
	m, err := object.ParseMeta(body)
	if err != nil {
		e.Logger.Warn("namespace cannot be read: its archive is kept for the default time", "namespace", namespace, "error", err)
		return e.For
	}
	if d, ok := lifecycle.ArchiveWindow(m.Annotations); ok {
		return d
	}
	return e.For
}

// notes removes rows that only archived objects needed which are gone now:
// dropped references and names of kinds. It looks for them before it begins a
// transaction, because usually there are none.
func (e *Expiry) notes(ctx context.Context) error {
	var b sqldb.Batch
	found, err := e.DB.Row(ctx, anyDropped, nil, new(int64))
	if err != nil {
		return fmt.Errorf("dropped references: %w", err)
	}
	if found {
		b.Exec(forgetDropped)
	}
	err = sqldb.Each(ctx, e.DB, func(row sqldb.Row) error {
		var storage string
		var removedAt int64
		err := row.Scan(&storage, &removedAt)
		b.Exec(forgetKind, storage, removedAt)
		return err
	}, unusedKinds, e.Now().Add(-e.For).UnixMilli())
	if err != nil {
		return fmt.Errorf("archived kinds: %w", err)
	}
	if b.Len() == 0 {
		return nil
	}
	return e.Transact(ctx, func(tx *Tx) error { return tx.Send(ctx, &b) })
}
