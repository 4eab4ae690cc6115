package sqldb

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

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

// Corrupt says whether an error means that the database is damaged. A retry does
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

// Full says whether an error means that the database has no space left: on its
// disk, or by its own limit. Nothing of the transaction was written, also if
// COMMIT failed, and no write succeeds until the operator frees space.
func Full(err error) bool {
	postgres, sqlite := codes(err)
	return postgres == "53100" || sqlite == sqliteFullCode // disk_full
}

// Unreachable says whether an error means that the database could not be reached:
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
