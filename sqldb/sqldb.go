// Package sqldb opens SQLite or PostgreSQL, migrates the schema, and gives both
// the same interface: statements with $n placeholders, reads from a read-only
// pool, and write transactions that can send many statements at once.
//
// On SQLite there is exactly one writing connection, so write transactions run
// one after the other. On PostgreSQL they run concurrently, and a transaction
// that needs an order takes a lock. Start at [OpenWithin].
package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Engine is a kind of database.
type Engine string

// The engines. Their values name the folders of package schema.
const (
	SQLite   Engine = "sqlite"
	Postgres Engine = "postgres"
)

// Now is the time of the database in an expression, in milliseconds.
func (e Engine) Now() string {
	if e == Postgres {
		return "gc_now()"
	}
	return "CAST(unixepoch('subsec') * 1000 AS INTEGER)"
}

// DB is an open database with the current schema. It is safe for concurrent
// use.
type DB struct {
	engine Engine
	path   string // of the SQLite file

	reader *sql.DB // read-only
	writer *sql.DB // on SQLite: exactly one connection

	readPool, writePool *pgxpool.Pool // PostgreSQL only; under reader and writer

	lite         *liteConn    // SQLite only; owned by the holder of the writer's connection
	keyed, reads *liteReaders // SQLite only: for reads by key, and for all others
	flush        flusher      // SQLite only
	// noSync: SQLite only; no transaction waits for the disk.
	noSync bool
	copied bool // from the template: it has the current schema

	holder   holder   // this process
	timeouts timeouts // PostgreSQL only
}

// Open is OpenWithin without time limits: for tests, and for commands whose statements
// may take long.
func Open(ctx context.Context, database string) (*DB, error) {
	return OpenWithin(ctx, database, Limits{})
}

// OpenWithin opens the database, creates it if it is an SQLite file that does not
// exist, and migrates it. database is a postgres:// or postgresql:// URL, or
// else the path of an SQLite file.
func OpenWithin(ctx context.Context, database string, limits Limits) (*DB, error) {
	db, err := open(ctx, database, limits)
	if err != nil {
		return nil, err
	}
	if err := db.migrate(ctx, 0); err != nil {
		return nil, errors.Join(Advised(err), db.Close())
	}
	return db, nil
}

// OpenAsIs opens a database without migrating it: for migrations by hand.
func OpenAsIs(ctx context.Context, database string) (*DB, error) {
	return open(ctx, database, Limits{})
}

func open(ctx context.Context, database string, limits Limits) (db *DB, err error) {
	if isPostgres(database) {
		db, err = openPostgres(ctx, database, limits)
	} else {
		db, err = openSQLite(ctx, database, limits.NoSync)
	}
	if err != nil {
		return nil, Advised(err)
	}
	db.holder.init()
	return db, nil
}

// Check refuses a database that OpenWithin refuses by its name alone.
func Check(database string) error {
	if isPostgres(database) {
		if _, err := pgxpool.ParseConfig(database); err != nil {
			return fmt.Errorf("open database: %w", err) // pgx leaves the password out
		}
		return nil
	}
	if scheme, _, other := strings.Cut(database, "://"); other {
		return fmt.Errorf("open database: unknown scheme %q: need the path of a file, or a postgres:// URL", scheme)
	}
	return nil
}

func isPostgres(database string) bool {
	return strings.HasPrefix(database, "postgres://") || strings.HasPrefix(database, "postgresql://")
}

// named is the file for error texts. A URL is left out: it may have a password.
func (db *DB) named() string {
	if db.path == "" {
		return ""
	}
	return " " + db.path
}

// Engine says which engine this is.
func (db *DB) Engine() Engine { return db.engine }

// Reader is database/sql's pool for reads, for tools and tests: it converts rows by rules of its
// own, and keeps no statements. Writing through it is an error.
func (db *DB) Reader() *sql.DB { return db.reader }

// Close closes all connections. Transactions must have ended.
func (db *DB) Close() error {
	errs := []error{db.closeLite(), db.keyed.close(), db.reads.close(), db.flush.close()}
	for _, pool := range []*sql.DB{db.reader, db.writer} {
		if pool != nil {
			errs = append(errs, pool.Close())
		}
	}
	for _, pool := range []*pgxpool.Pool{db.readPool, db.writePool} {
		if pool != nil {
			pool.Close()
		}
	}
	return errors.Join(errs...)
}

// InUse is how many connections are reading or writing now.
func (db *DB) InUse() int {
	if db.engine == Postgres {
		return int(db.readPool.Stat().AcquiredConns() + db.writePool.Stat().AcquiredConns())
	}
	return db.reader.Stats().InUse + db.writer.Stats().InUse + len(db.keyed.turns) + len(db.reads.turns)
}

// beginRead begins a read-only transaction of database/sql in which every statement sees the same
// state: for what reads whole tables.
func (db *DB) beginRead(ctx context.Context) (*sql.Tx, error) {
	options := &sql.TxOptions{ReadOnly: true}
	if db.engine == Postgres {
		options.Isolation = sql.LevelRepeatableRead
	}
	return db.reader.BeginTx(ctx, options)
}

// Write runs fn in a write transaction and commits it when fn returns nil. On
// SQLite all other write transactions wait for it: it must be short and must not
// wait for anything.
func (db *DB) Write(ctx context.Context, fn func(tx *sql.Tx) error) error {
	tx, err := db.writer.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	// Does nothing after a commit.
	defer func() { _ = tx.Rollback() }()
	if err := fn(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// Size is the size of the database in bytes. For SQLite it includes the write-ahead
// log and the free pages of the file.
func (db *DB) Size(ctx context.Context) (int64, error) {
	statement := "SELECT pg_database_size(current_database())"
	if db.engine == SQLite {
		statement = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
	}
	var size int64
	if _, err := db.Row(ctx, statement, nil, &size); err != nil {
		return 0, fmt.Errorf("size of the database: %w", err)
	}
	log, err := db.LogSize()
	return size + log, err
}

// Codes of errors of SQLite.
const (
	sqliteBusyCode    = 5  // SQLITE_BUSY
	sqliteCorruptCode = 11 // SQLITE_CORRUPT: database disk image is malformed
	sqliteFullCode    = 13 // SQLITE_FULL
	sqliteNotADBCode  = 26 // SQLITE_NOTADB: file is not a database
)

// codes are PostgreSQL's code of an error, or SQLite's; "" and 0: it has none.
func codes(err error) (postgres string, sqlite int) {
	var answer *pgconn.PgError
	if errors.As(err, &answer) {
		return answer.Code, 0
	}
	var lite interface{ Code() int }
	if errors.As(err, &lite) {
		return "", lite.Code() & 0xff
	}
	return "", 0
}

// CorruptAdvice is what to do about a damaged database.
const CorruptAdvice = "the database is damaged or is not one of Exeunt: stop the server, keep the file, and restore database and blobs from one backup (docs/operating.md, Backup)"

// Corrupt reports whether an error means that the database is damaged. A retry does
// not help, and more writes may increase the damage.
func Corrupt(err error) bool {
	postgres, sqlite := codes(err)
	return strings.HasPrefix(postgres, "XX00") && postgres != "XX000" || // data_corrupted, index_corrupted
		sqlite == sqliteCorruptCode || sqlite == sqliteNotADBCode
}

// Advised adds CorruptAdvice to the error of a damaged database.
func Advised(err error) error {
	if Corrupt(err) {
		return fmt.Errorf("%w: %s", err, CorruptAdvice)
	}
	return err
}

// Full reports whether an error means that the database has no space left: on its
// disk, or by its own limit. Nothing of the transaction was written, also if
// COMMIT failed, and no write succeeds until the operator frees space.
func Full(err error) bool {
	postgres, sqlite := codes(err)
	return postgres == "53100" || sqlite == sqliteFullCode // disk_full
}

// Unreachable reports whether an error means that the database could not be reached:
// no connection, a broken connection, a server that starts, stops or has no
// connections left, a time limit of PostgreSQL (Limits), a file that another process has
// locked. A retry may succeed.
// It does not say whether a commit that failed this way took place.
func Unreachable(err error) bool {
	postgres, sqlite := codes(err)
	if postgres != "" || sqlite != 0 {
		return strings.HasPrefix(postgres, "08") || // connection exceptions
			strings.HasPrefix(postgres, "57P0") || // shut down, crashed, starting
			postgres == "53300" || // too many connections
			postgres == codeStatementTimeout || postgres == codeLockTimeout || postgres == codeIdleTransaction || sqlite == sqliteBusyCode
	}
	broken := []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, driver.ErrBadConn, sql.ErrConnDone}
	if slices.ContainsFunc(broken, func(b error) bool { return errors.Is(err, b) }) {
		return true
	}
	var connect *pgconn.ConnectError
	var network *net.OpError
	return errors.As(err, &connect) || errors.As(err, &network) || pgconn.SafeToRetry(err)
}
