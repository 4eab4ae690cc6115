package sqldb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
)

// errLost: the disk has refused to keep what was committed.
var errLost = errors.New("the database cannot be written until the process is started anew")

// flusher makes transactions of BeginAhead last.
//
// SQLite can leave its write-ahead log unsynced when it commits
// (synchronous=NORMAL). The log is appended to, so syncing it once makes
// everything last that was committed before, whoever committed it; and it is
// synced by SQLite itself before a checkpoint copies it and before it begins
// anew. So while the disk works for one transaction the next one can run, and
// those that end meanwhile share the sync that follows.
//
// A sync that fails may have dropped what it was to write, and a later one
// would succeed: what it promised would then stand behind a hole in the log,
// where no recovery finds it. So after the first failure nothing is written.
type flusher struct {
	committed atomic.Int64          // transactions that a sync is owed
	inFlight  atomic.Int64          // commits that may be seen, and are not counted yet
	lost      atomic.Pointer[error] // of the sync that failed
	flushed   atomic.Int64          // how many of committed have their sync; set by who has mu
	mu        sync.Mutex            // held while the disk works: who waits for it shares the next sync
	log       *os.File              // the write-ahead log; guarded by mu
	sync      func(*os.File) error  // set once
}

// BeginAhead is Begin for a transaction that does not wait for the disk: on
// SQLite what it commits can be read at once, and lasts when the next Flush has
// returned. Nobody may be told that it was done before. On PostgreSQL, which
// groups commits itself, it is Begin.
func (db *DB) BeginAhead(ctx context.Context) (*Tx, error) {
	return db.begin(ctx, true)
}

// Flush returns when everything that was committed before it was called, or that
// the caller has read, survives a power cut.
func (db *DB) Flush() error {
	if db.engine != SQLite {
		return nil
	}
	if err := db.flush.to(db.path + "-wal"); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	return nil
}

// to syncs the log, unless somebody has done so since the last transaction was
// committed. One that is just being committed may have been read: then it is in
// the log, and is synced here. It is counted later, for the sync of its own.
func (f *flusher) to(path string) error {
	counted := f.inFlight.Load() == 0 // before committed is read: what was in flight is in it
	number := f.committed.Load()
	if counted && f.flushed.Load() >= number {
		return f.usable()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.usable(); err != nil {
		return err
	}
	if counted && f.flushed.Load() >= number {
		return nil
	}
	all := f.committed.Load()
	err := f.open(path)
	if err == nil {
		err = f.sync(f.log)
	}
	if err != nil {
		f.lost.Store(&err)
		return f.usable()
	}
	f.flushed.Store(all)
	return nil
}

// usable is the error that every transaction gets after a sync has failed.
func (f *flusher) usable() error {
	if cause := f.lost.Load(); cause != nil {
		return fmt.Errorf("%w: %w", errLost, *cause)
	}
	return nil
}

// open makes sure that the log is the one that SQLite writes: it is made anew
// when all connections were closed, which the pool may do.
func (f *flusher) open(path string) error {
	now, err := os.Stat(path)
	if err != nil {
		return err
	}
	if f.log != nil {
		if had, err := f.log.Stat(); err == nil && os.SameFile(had, now) {
			return nil
		}
		if err := f.close(); err != nil {
			return err
		}
	}
	f.log, err = os.OpenFile(path, os.O_RDWR, 0)
	return err
}

func (f *flusher) close() error {
	if f.log == nil {
		return nil
	}
	err := f.log.Close()
	f.log = nil
	return err
}
