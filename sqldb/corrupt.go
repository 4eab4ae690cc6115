package sqldb

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	sqliteCorruptCode = 11 // SQLITE_CORRUPT: database disk image is malformed
	sqliteNotADBCode  = 26 // SQLITE_NOTADB: file is not a database
)

// CorruptAdvice is what to do about a damaged database.
const CorruptAdvice = "the database is damaged or is not one of Exeunt: stop the server, keep the file, and restore database and blobs from one backup (docs/operating.md, Backup)"

// Corrupt says whether an error means that the database is damaged. A retry does
// not help, and more writes may increase the damage.
func Corrupt(err error) bool {
	var answer *pgconn.PgError
	if errors.As(err, &answer) {
		return strings.HasPrefix(answer.Code, "XX00") && answer.Code != "XX000" // data_corrupted, index_corrupted
	}
	var lite interface{ Code() int }
	if !errors.As(err, &lite) {
		return false
	}
	code := lite.Code() & 0xff
	return code == sqliteCorruptCode || code == sqliteNotADBCode
}

// Advised adds CorruptAdvice to the error of a damaged database.
func Advised(err error) error {
	if Corrupt(err) {
		return fmt.Errorf("%w: %s", err, CorruptAdvice)
	}
	return err
}
