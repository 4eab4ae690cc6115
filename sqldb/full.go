package sqldb

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	sqliteFullCode   = 13      // SQLITE_FULL
	postgresDiskFull = "53100" // disk_full
)

// Full says whether an error means that the database has no space left: on its
// disk, or by its own limit. Nothing of the transaction was written, also if
// COMMIT failed, and no write succeeds until the operator frees space.
func Full(err error) bool {
	var answer *pgconn.PgError
	if errors.As(err, &answer) {
		return answer.Code == postgresDiskFull
	}
	var lite interface{ Code() int }
	return errors.As(err, &lite) && lite.Code()&0xff == sqliteFullCode
}
