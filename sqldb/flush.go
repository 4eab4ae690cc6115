package sqldb

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
)

// errLost: a sync of committed transactions failed.
var errLost = errors.New("the database cannot be written until the process is restarted")

// flusher makes transactions that are Ahead durable.
//
// SQLite can leave its write-ahead log unsynced when it commits
// (synchronous=NORMAL). The log is append-only, so one sync makes every earlier
// commit durable, from all connections. SQLite itself syncs the log before a
// checkpoint copies it and before it restarts the log. So while the disk syncs
// one transaction the next one can run, and the transactions that commit during
// a sync share the next one.
//
// A sync that fails may have lost its data, and a later sync may succeed: the
// later transactions would then stand behind a hole in the log, where recovery
// does not find them. So after the first failure nothing is written.
type flusher struct {
	committed atomic.Int64          // transactions that need a sync
	inFlight  atomic.Int64          // commits that readers may see and committed does not count yet
	lost      atomic.Pointer[error] // the error of the sync that failed
	flushed   atomic.Int64          // how many of committed are synced; set under mu
	mu        sync.Mutex            // held during a sync: all that wait for it share the next sync
	log       *os.File              // the write-ahead log; guarded by mu
	sync      func(*os.File) error  // set once
}

// Flush returns when every transaction that was committed before the call, or that
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

// to syncs the log, unless another call has done so since the last commit. The
// caller may have read a transaction that is still committing: it is in the log,
// so this sync covers it. It is counted after that; its own Flush syncs again.
func (f *flusher) to(path string) error {
	counted := f.inFlight.Load() == 0 // read before committed, so that committed includes what was in flight
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

// usable returns an error after a sync has failed: every transaction gets it.
func (f *flusher) usable() error {
	if cause := f.lost.Load(); cause != nil {
		return fmt.Errorf("%w: %w", errLost, *cause)
	}
	return nil
}

// open makes sure that f.log is the file that SQLite writes: SQLite creates a new
// one when all connections were closed, which the pool may do.
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
