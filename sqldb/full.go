package sqldb

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	sqliteFullCode   = 13      // SQLITE_FULL
	postgresDiskFull = "53100" // disk_full
)

// Full says whether an error is that there is no space for the database: on its
// disk, or by its own limit. Nothing of the transaction was written, at COMMIT
// too, and nothing can be until somebody makes space.
func Full(err error) bool {
	var answer *pgconn.PgError
	if errors.As(err, &answer) {
		return answer.Code == postgresDiskFull
	}
	var lite interface{ Code() int }
	return errors.As(err, &lite) && lite.Code()&0xff == sqliteFullCode
}
