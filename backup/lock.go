package backup

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/exeunt/exeunt/internal/lockfile"
	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/sqldb"
)

// ErrBusy: another process writes to the target, or backs the same database up.
var ErrBusy = errors.New("another backup or prune is running")

const (
	// lockPrefix begins the names of the lock documents in a bucket.
	lockPrefix = "lock-"
	// A lock document counts for lockLease after its last write. Its process writes it
	// again every lockRefresh.
	lockLease   = 10 * time.Minute
	lockRefresh = time.Minute
)

// lock keeps other processes from writing to the target. The context that it returns
// ends if the lock is lost. In a directory the kernel releases the lock with the process.
func (t *Target) lock(ctx context.Context) (locked context.Context, unlock func() error, err error) {
	if t.dir == "" {
		return t.lockBucket(ctx)
	}
	f, err := os.OpenFile(filepath.Join(t.dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("lock %s: %w", t.dir, err)
	}
	got, err := lockfile.TryLock(f)
	if err == nil && !got {
		err = ErrBusy
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("lock %s: %w", t.dir, err), f.Close())
	}
	return ctx, func() error { return lockfile.Unlock(f) }, nil
}

// lockBucket writes a document and then looks for those of others: of two processes
// that do so at once, at least one sees the other and gives up. Ages are compared on the
// clock of the bucket.
func (t *Target) lockBucket(ctx context.Context) (context.Context, func() error, error) {
	own := lockPrefix + strings.ToLower(rand.Text())
	if err := t.store.PutDocument(ctx, own, []byte("a process writes backups here\n")); err != nil {
		return nil, nil, fmt.Errorf("lock %s: %w", t.location, err)
	}
	clean := context.WithoutCancel(ctx)
	if err := t.checkLocks(ctx, own); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("lock %s: %w", t.location, err), t.store.RemoveDocument(clean, own))
	}
	locked, lose := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		t.keepLock(locked, own, lose)
	}()
	return locked, func() error {
		lose(nil)
		<-ended
		return t.store.RemoveDocument(clean, own)
	}, nil
}

func (t *Target) checkLocks(ctx context.Context, own string) error {
	list, err := t.store.ListDocuments(ctx)
	if err != nil {
		return err
	}
	var now time.Time
	for _, d := range list {
		if d.Name == own {
			now = d.Written
		}
	}
	for _, d := range list {
		if d.Name == own || !strings.HasPrefix(d.Name, lockPrefix) {
			continue
		}
		if now.Sub(d.Written) < lockLease {
			return ErrBusy
		}
		if err := t.store.RemoveDocument(ctx, d.Name); err != nil { // its process died
			return err
		}
	}
	return nil
}

// keepLock writes the document again until ctx ends. When that has failed for half of
// the lease, the lock is lost.
func (t *Target) keepLock(ctx context.Context, own string, lose context.CancelCauseFunc) {
	last := time.Now()
	for task.Sleep(ctx, lockRefresh) {
		err := t.store.PutDocument(ctx, own, []byte("a process writes backups here\n"))
		if err == nil {
			last = time.Now()
		} else if time.Since(last) > lockLease/2 {
			lose(fmt.Errorf("the lock of %s was lost: %w", t.location, err))
			return
		}
	}
}

// A hold is a row of backups with a lease. While it lasts, no unlinker removes bytes
// (registry/collect/unlink.go). The lease ends by itself when the process dies. Times are
// those of the database's clock.
const (
	holdLease   = 2 * time.Minute
	holdRefresh = 10 * time.Second
)

// errHold: the lease ended, so bytes may have been removed.
var errHold = errors.New("the hold on the registry's bytes was lost: the process was stopped, or did not reach the database, for too long")

type holdSQL struct{ now string }

// The statements. Each row of another backup with a lease refuses insert.
func (s holdSQL) insert() string {
	return `
INSERT INTO backups (id, target, began_at, hold_until)
SELECT $1, $2, ` + s.now + `, ` + s.now + ` + $3 WHERE NOT EXISTS (SELECT 1 FROM backup_holds)`
}

func (s holdSQL) extend() string {
	return `UPDATE backups SET hold_until = ` + s.now + ` + $2, progress = $3 WHERE id = $1 AND hold_until > ` + s.now
}

// forget deletes the rows of interrupted backups, and those of all ended ones but $1.
func (s holdSQL) forget() string {
	return `DELETE FROM backups WHERE id <> $1 AND restored_at IS NULL AND hold_until <= ` + s.now
}

func (s holdSQL) end() string {
	return `UPDATE backups SET hold_until = 0, ended_at = ` + s.now + ` WHERE id = $1`
}

const (
	releaseHold  = `UPDATE backups SET hold_until = 0 WHERE id = $1`
	lockBackups  = `LOCK TABLE backups IN SHARE ROW EXCLUSIVE MODE`
	findLast     = `SELECT id, target, ended_at FROM backups WHERE ended_at IS NOT NULL ORDER BY ended_at DESC LIMIT 1`
	findRunning  = `SELECT id, target, began_at, progress FROM backups WHERE id IN (SELECT id FROM backup_holds) AND progress <> '' ORDER BY id LIMIT 1`
	findRestored = `SELECT id, restored_at FROM backups WHERE restored_at IS NOT NULL ORDER BY restored_at DESC LIMIT 1`
	markRestored = `UPDATE backups SET hold_until = 0, ended_at = $2, restored_at = $3 WHERE id = $1`
)

// hold is a held lease.
type hold struct {
	db    *sqldb.DB
	sql   holdSQL
	id    string
	lease time.Duration
	// progress is how far the work is, as Running returns it.
	progress func() Progress
}

// takeHold writes the row. ErrBusy: another backup of the database runs.
func takeHold(ctx context.Context, db *sqldb.DB, id, target string, lease time.Duration, progress func() Progress) (*hold, error) {
	h := &hold{db: db, sql: holdSQL{db.Engine().Now()}, id: id, lease: lease, progress: progress}
	err := db.Transact(ctx, func(tx *sqldb.Tx) error {
		if db.Engine() == sqldb.Postgres { // two inserts at once would not see each other
			if err := tx.Exec(ctx, lockBackups); err != nil {
				return err
			}
		}
		return changeOne(ctx, tx, ErrBusy, h.sql.insert(), id, target, lease.Milliseconds())
	})
	if err != nil {
		return nil, fmt.Errorf("hold the registry's bytes: %w", err)
	}
	return h, nil
}

// changeOne runs a statement that changes one row, or returns none.
func changeOne(ctx context.Context, tx *sqldb.Tx, none error, statement string, args ...any) error {
	changed, err := sqldb.First(ctx, tx, []any{new(string)}, statement+" RETURNING id", args...)
	if err == nil && !changed {
		return none
	}
	return err
}

// extend begins the lease again, unless it has ended, and records the progress.
func (h *hold) extend(ctx context.Context) error {
	progress, err := json.Marshal(h.progress())
	if err != nil {
		return err
	}
	return h.db.Transact(ctx, func(tx *sqldb.Tx) error {
		return changeOne(ctx, tx, errHold, h.sql.extend(), h.id, h.lease.Milliseconds(), string(progress))
	})
}

// keep extends the lease until ctx ends, and cancels the work when it is lost. Other
// failures are repeated: the lease decides.
func (h *hold) keep(ctx context.Context, every time.Duration, lose context.CancelCauseFunc) {
	for task.Sleep(ctx, every) {
		if err := h.extend(ctx); errors.Is(err, errHold) {
			lose(err)
			return
		}
	}
}

// end records a whole backup and releases the hold.
func (h *hold) end(ctx context.Context) error {
	err := h.db.Transact(ctx, func(tx *sqldb.Tx) error {
		var b sqldb.Batch
		b.Exec(h.sql.end(), h.id)
		b.Exec(h.sql.forget(), h.id)
		return tx.Send(ctx, &b)
	})
	if err != nil {
		return fmt.Errorf("record the backup: %w", err)
	}
	return nil
}

// release ends the hold of a backup that failed.
func (h *hold) release(ctx context.Context) error {
	return h.db.Transact(ctx, func(tx *sqldb.Tx) error { return tx.Exec(ctx, releaseHold, h.id) })
}

// Record is a backup in the database that was backed up.
type Record struct {
	ID     string    `json:"id"`
	Target string    `json:"target"`
	At     time.Time `json:"at"` // when it ended; of one that runs: when it began
}

// Last returns the last whole backup of a database.
func Last(ctx context.Context, db *sqldb.DB) (r Record, found bool, err error) {
	var at int64
	found, err = db.Row(ctx, findLast, nil, &r.ID, &r.Target, &at)
	r.At = time.UnixMilli(at).UTC()
	return r, found, err
}

// Running is a backup that some process makes now.
type Running struct {
	Record
	Progress
}

// Now returns the backup of a database that runs, as its process last said: every 10 seconds, and when a step begins.
func Now(ctx context.Context, db *sqldb.DB) (*Running, error) {
	r := &Running{}
	var at int64
	var progress string
	found, err := db.Row(ctx, findRunning, nil, &r.ID, &r.Target, &at, &progress)
	if err != nil || !found {
		return nil, err
	}
	r.At = time.UnixMilli(at).UTC()
	return r, json.Unmarshal([]byte(progress), &r.Progress)
}

// RestoredFrom returns the backup that a database was restored from, and when.
func RestoredFrom(ctx context.Context, db *sqldb.DB) (r Record, found bool, err error) {
	var at int64
	found, err = db.Row(ctx, findRestored, nil, &r.ID, &at)
	r.At = time.UnixMilli(at).UTC()
	return r, found, err
}
