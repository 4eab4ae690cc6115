package store

import (
	"context"
	"fmt"
	"time"

	"github.com/exeunt/exeunt/internal/task"
)

const (
	compactStep  = 1000     // revisions per transaction
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
// revisions. 0: nothing is old enough.
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
// ctx ends. The first run is CompactEvery after the start, since it may be long.
func (s *Store) runCompactor(ctx context.Context) {
	c := compactor{keepFor: s.opts.KeepFor, keepRevisions: s.opts.KeepRevisions}
	before := s.Revision()
	c.next(s.now(), before)
	for task.Sleep(ctx, s.opts.CompactEvery) {
		current := s.Revision()
		err := s.compact(ctx, c.next(s.now(), current))
		if err == nil {
			err = s.expiry.Run(ctx)
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

// compact deletes the states that only lists and watches before revision to need.
// It works in small steps, each a transaction between two batches of the writer.
func (s *Store) compact(ctx context.Context, to int64) error {
	for done := false; !done; {
		err := s.Transact(ctx, func(t *Tx) error {
			last := min(to, t.revision)
			end := min(last, t.compacted+compactStep)
			if done = end >= last; last <= t.compacted {
				return nil
			}
			t.Defer(compactBodies, t.compacted, end)
			t.Defer(compactTombstones, t.compacted, end)
			t.Defer(setCompacted, end)
			return nil
		})
		if err != nil {
			return fmt.Errorf("compact to %d: %w", to, err)
		}
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
