package store

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/due"
)

const (
	vacuumStep   = 512      // pages per transaction
	longLog      = 16 << 20 // bytes of write-ahead log at which it is truncated
	idleLogBytes = 1 << 20  // the same, while there are no writes
)

// sample is the newest revision at a time.
type sample struct {
	at       time.Time
	revision int64
}

// compactor decides what to compact. Samples are in memory only, so after a start
// nothing is compacted by age until KeepFor has passed.
type compactor struct {
	keepFor       time.Duration
	keepRevisions int64
	samples       []sample
}

// next records the current revision and returns the revision to compact to: the
// newest sample older than keepFor, or a later one that leaves keepRevisions
// revisions. 0 means nothing is old enough.
func (c *compactor) next(now time.Time, current int64) int64 {
	c.samples = append(c.samples, sample{now, current})
	var old int64
	for len(c.samples) > 0 && !c.samples[0].at.After(now.Add(-c.keepFor)) {
		old = c.samples[0].revision
		c.samples = c.samples[1:]
	}
	return max(old, current-c.keepRevisions, 0)
}

// runCompactor compacts, expires and returns disk space every CompactEvery until
// ctx ends, counted from the begin of a run. The first run is CompactEvery after the start, since it may be long.
func (s *Store) runCompactor(ctx context.Context) {
	c := compactor{keepFor: s.opts.KeepFor, keepRevisions: s.opts.KeepRevisions}
	before := s.Revision()
	c.next(s.now(), before)
	for pause := s.opts.CompactEvery; task.Sleep(ctx, pause); {
		begin, current := time.Now(), s.Revision()
		err := s.compact(ctx, c.next(s.now(), current))
		if err == nil {
			err = s.expiry.Run(ctx)
		}
		if err == nil {
			err = s.past.Expire(ctx)
		}
		if err == nil {
			err = s.removeDue(ctx)
		}
		if err == nil {
			err = s.tidy(ctx, current == before)
		}
		if err != nil && ctx.Err() == nil {
			s.log.Warn("compaction failed", "error", err)
		}
		before, pause = current, s.opts.CompactEvery-time.Since(begin)
	}
}

// compact takes out of the log the states that only lists and watches before revision to need, and moves them into the
// history. It works in small steps, each a transaction between two batches of the writer.
func (s *Store) compact(ctx context.Context, to int64) error {
	current, compacted, err := s.revisions(ctx)
	if err != nil {
		return err
	}
	// What is compacted may not be moved: in a restored backup.
	if err := s.past.Move(ctx, max(min(to, current), compacted), s.opts.CompactEvery); err != nil {
		return fmt.Errorf("compact to %d: %w", to, err)
	}
	return nil
}

// tidy returns free disk space to the file system, in small steps. On PostgreSQL
// it does nothing.
func (s *Store) tidy(ctx context.Context, idle bool) error {
	for again := true; again; {
		err := s.writer.do(ctx, func() (err error) {
			again, err = s.db.Vacuum(ctx, vacuumStep)
			return err
		})
		if err != nil {
			return err
		}
	}
	size, err := s.db.LogSize()
	if err != nil {
		return err
	}
	if size > longLog || idle && size > idleLogBytes {
		return s.writer.do(ctx, func() error { return s.db.Checkpoint(ctx) })
	}
	return nil
}

// ttlStep is how many objects one transaction removes.
const ttlStep = 200

// removeDue removes the objects whose TTL has ended.
func (s *Store) removeDue(ctx context.Context) error {
	for more := true; more; {
		found, err := s.db.Row(ctx, due.AnyEvent, []any{s.now().UnixMilli()}, new(int64))
		if err == nil && found {
			more, err = s.removeDueOnce(ctx)
		}
		if err != nil {
			return fmt.Errorf("expire objects: %w", err)
		}
		more = more && found
	}
	return nil
}

// removeDueOnce is one step. It reports whether there may be more.
func (s *Store) removeDueOnce(ctx context.Context) (more bool, err error) {
	removed := 0
	err = s.Transact(ctx, func(tx *Tx) error {
		rows, objects, err := tx.due(ctx)
		if err != nil {
			return err
		}
		for _, o := range objects {
			tx.Remove(o)
		}
		for _, id := range rows {
			tx.writes.queued.Exec(due.DeleteEvent, id)
		}
		more, removed = len(rows) == ttlStep, len(objects)
		return nil
	})
	if err != nil {
		return false, err
	}
	s.expired.Add(int64(removed))
	return more, nil
}

// due reads the next rows that are due, and those of their objects that exist.
func (t *Tx) due(ctx context.Context) (rows []int64, objects []*Stored, err error) {
	var b sqldb.Batch
	b.Query(func(row sqldb.Row) error {
		o := &Stored{}
		var uid string
		if err := row.Scan(&o.ID, &uid, &o.Kind, &o.Namespace, &o.Name, &o.Revision, &o.Deletion, &o.Body); err != nil {
			return err
		}
		rows = append(rows, o.ID)
		if o.UID = types.UID(uid); uid == "" {
			return nil
		}
		objects = append(objects, o)
		return t.finish(o)
	}, due.ReadEvents, t.Now.UnixMilli(), int64(ttlStep))
	return rows, objects, t.sendAll(ctx, &b)
}

// Expired is how many objects this process has removed because their TTL ended.
func (s *Store) Expired() int64 { return s.expired.Load() }
