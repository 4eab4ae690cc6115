package store

import (
	"context"
	"fmt"
	"time"

	"github.com/exeunt/exeunt/sqldb"
)

const (
	compactStep  = 1000     // revisions per transaction
	vacuumStep   = 512      // pages per transaction
	longLog      = 16 << 20 // bytes of write-ahead log that are worth cutting
	idleLogBytes = 1 << 20  // the same when nobody writes
)

// sample is a revision and when it was the newest.
type sample struct {
	at       time.Time
	revision int64
}

// compactor decides what to compact. Times live in memory only: after a start
// nothing is compacted by age until KeepFor has passed.
type compactor struct {
	keepFor       time.Duration
	keepRevisions int64
	samples       []sample
}

// next notes the current revision and returns the revision to compact to: the
// newest one that is older than keepFor, or, if there are too many after it,
// what leaves keepRevisions. 0: nothing is known to be old.
func (c *compactor) next(now time.Time, current int64) int64 {
	c.samples = append(c.samples, sample{now, current})
	var old int64
	for len(c.samples) > 0 && !c.samples[0].at.After(now.Add(-c.keepFor)) {
		old = c.samples[0].revision
		c.samples = c.samples[1:]
	}
	return max(old, current-c.keepRevisions, 0)
}

// runCompactor compacts and tidies until ctx ends, not before the start is long
// over: there may be much to do.
func (s *Store) runCompactor(ctx context.Context) {
	c := compactor{keepFor: s.opts.KeepFor, keepRevisions: s.opts.KeepRevisions}
	before := s.Revision()
	c.next(s.now(), before)
	ticker := time.NewTicker(s.opts.CompactEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		current := s.Revision()
		err := s.compact(ctx, c.next(s.now(), current))
		if err == nil {
			err = s.expire(ctx)
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
		before = current
	}
}

// compact forgets what is only needed before a revision: lists and watches from
// it and later still work. It goes in small steps, each its own transaction
// between two batches of the writer.
func (s *Store) compact(ctx context.Context, to int64) error {
	for done := false; !done; {
		err := s.writer.do(ctx, func() (err error) {
			done, err = s.compactOnce(ctx, to)
			return err
		})
		if err != nil {
			return fmt.Errorf("compact to %d: %w", to, err)
		}
	}
	return nil
}

// compactOnce is one step. It reports whether it was the last.
func (s *Store) compactOnce(ctx context.Context, to int64) (bool, error) {
	tx, err := s.db.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	var first sqldb.Batch
	var current, compacted int64
	lock(&first, s.db.Engine(), &current, &compacted)
	if err := tx.Send(ctx, &first); err != nil {
		return false, err
	}
	to = min(to, current)
	if to <= compacted {
		return true, nil
	}
	end := min(to, compacted+compactStep)
	var b sqldb.Batch
	b.Exec(compactBodies, compacted, end)
	b.Exec(compactTombstones, compacted, end)
	b.Exec(setCompacted, end)
	if err := tx.Send(ctx, &b); err != nil {
		return false, err
	}
	return end == to, tx.Commit(ctx)
}

// tidy gives disk space back, in small steps. On PostgreSQL there is nothing to
// do.
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
