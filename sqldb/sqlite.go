package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/exeunt/exeunt/sqldb/pagealloc"
)

const (
	// sqliteReaders is the size of each of the two pools for reads: that of Row,
	// and that of all other reads.
	sqliteReaders = 8
	// sqliteBusy is how long a statement waits for another process that writes.
	sqliteBusy = 10 * time.Second
)

// writerPragmas are in order: auto_vacuum only takes effect before the first
// table is created. Every commit is synced (synchronous 2). A checkpoint copies
// the write-ahead log back every 4,000 pages, while other writers wait: with
// 16,000, pushes were a little faster, but the slowest requests during a cascade
// took 100 ms and more. A longer log is truncated to 64 MiB.
var writerPragmas = []string{
	fmt.Sprintf("busy_timeout(%d)", sqliteBusy.Milliseconds()), "auto_vacuum(2)", "journal_mode(WAL)",
	"synchronous(2)", "foreign_keys(1)", "journal_size_limit(67108864)", "wal_autocheckpoint(4000)",
	"cache_size(-4096)", "temp_store(2)",
}

// Readers need small caches, because the store caches what is read often.
var readerPragmas = []string{
	fmt.Sprintf("busy_timeout(%d)", sqliteBusy.Milliseconds()), "query_only(1)", "cache_size(-512)", "temp_store(2)",
}

func openSQLite(ctx context.Context, path string, noSync bool) (*DB, error) {
	if path == "" || strings.Contains(path, ":memory:") {
		return nil, fmt.Errorf("open database %q: need the path of a file, or a postgres:// URL", path)
	}
	if err := Check(path); err != nil {
		return nil, err
	}
	if err := pagealloc.Install(); err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	// Created here and not by SQLite, with mode 0600: it will contain secrets.
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	if err := file.Close(); err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	db := &DB{engine: SQLite, path: path, flush: flusher{sync: syncData}}
	pragmas := writerPragmas
	if noSync {
		db.noSync, db.copied = true, copyTemplate(path)
		pragmas = append(slices.Clone(pragmas), "synchronous(0)")
	}
	if err := db.connectSQLite(ctx, pragmas); err != nil {
		return nil, errors.Join(fmt.Errorf("open database %s: %w", path, err), db.Close())
	}
	return db, nil
}

// connectSQLite opens the writer first: it creates the database in WAL mode, which
// readers cannot.
func (db *DB) connectSQLite(ctx context.Context, pragmas []string) error {
	var err error
	if db.writer, err = sql.Open("sqlite", sqliteName(db.path, "rw", "immediate", pragmas)); err != nil {
		return err
	}
	db.writer.SetMaxOpenConns(1)
	db.writer.SetMaxIdleConns(1)
	if err := pingSQLite(ctx, db.writer); err != nil {
		return err
	}
	if db.reader, err = sql.Open("sqlite", sqliteName(db.path, "ro", "deferred", readerPragmas)); err != nil {
		return err
	}
	db.reads = db.newLiteReaders(db.path, readerPragmas)
	db.keyed = &liteReaders{turns: make(chan struct{}, sqliteReaders), liteIdle: db.reads.liteIdle}
	return nil
}

// pingSQLite waits up to sqliteBusy for another process that is opening the file:
// SQLite itself does not wait when it enters WAL mode.
func pingSQLite(ctx context.Context, pool *sql.DB) error {
	deadline := time.Now().Add(sqliteBusy)
	for {
		err := pool.PingContext(ctx)
		if _, code := codes(err); code != sqliteBusyCode || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func sqliteName(path, mode, lock string, pragmas []string) string {
	query := url.Values{"mode": {mode}, "_txlock": {lock}, "_pragma": pragmas}
	escaped := (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath()
	return "file:" + escaped + "?" + query.Encode()
}

// Vacuum returns up to pages unused pages of an SQLite file to the file system,
// but keeps a tenth of the file free for later writes. It reports whether it
// returned any. On PostgreSQL it does nothing: autovacuum does.
func (db *DB) Vacuum(ctx context.Context, pages int) (bool, error) {
	if db.engine != SQLite {
		return false, nil
	}
	var free, total int
	if err := db.writer.QueryRowContext(ctx, "PRAGMA freelist_count").Scan(&free); err != nil {
		return false, fmt.Errorf("vacuum: %w", err)
	}
	if err := db.writer.QueryRowContext(ctx, "PRAGMA page_count").Scan(&total); err != nil {
		return false, fmt.Errorf("vacuum: %w", err)
	}
	spare := max(total/10, pages)
	if free <= spare {
		return false, nil
	}
	// The driver steps to the end of the result, which frees all the pages.
	statement := fmt.Sprintf("PRAGMA incremental_vacuum(%d)", min(pages, free-spare))
	if _, err := db.writer.ExecContext(ctx, statement); err != nil {
		return false, fmt.Errorf("vacuum: %w", err)
	}
	return true, nil
}

// Checkpoint copies the write-ahead log of SQLite back into the file and truncates
// it to 0 bytes, unless a reader still needs it. On PostgreSQL it does nothing.
func (db *DB) Checkpoint(ctx context.Context) error {
	if db.engine != SQLite {
		return nil
	}
	conn, err := db.writer.Conn(ctx)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	// Does not wait for readers: it holds the only connection that writes.
	_, err = conn.ExecContext(ctx, "PRAGMA busy_timeout = 0")
	if err == nil {
		_, err = conn.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	}
	_, back := conn.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", sqliteBusy.Milliseconds()))
	if err := errors.Join(err, back, conn.Close()); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// LogSize is the size of SQLite's write-ahead log in bytes. On PostgreSQL it
// is 0.
func (db *DB) LogSize() (int64, error) {
	if db.engine != SQLite {
		return 0, nil
	}
	info, err := os.Stat(db.path + "-wal")
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("size of write-ahead log: %w", err)
	}
	return info.Size(), nil
}

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
