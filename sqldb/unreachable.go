package sqldb

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Unreachable says whether an error means that the database could not be reached:
// no connection, a broken connection, a server that starts, stops or has no
// connections left, a time limit of PostgreSQL (Limits), a file that another process has
// locked. A retry may succeed.
// It does not say whether a commit that failed this way took place.
func Unreachable(err error) bool {
	var answer *pgconn.PgError
	if errors.As(err, &answer) {
		return strings.HasPrefix(answer.Code, "08") || // connection exceptions
			strings.HasPrefix(answer.Code, "57P0") || // shut down, crashed, starting
			answer.Code == "53300" || // too many connections
			answer.Code == codeStatementTimeout || answer.Code == codeLockTimeout || answer.Code == codeIdleTransaction
	}
	var lite interface{ Code() int }
	if errors.As(err, &lite) {
		return lite.Code()&0xff == sqliteBusyCode
	}
	for _, broken := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, driver.ErrBadConn, sql.ErrConnDone} {
		if errors.Is(err, broken) {
			return true
		}
	}
	var connect *pgconn.ConnectError
	var network *net.OpError
	return errors.As(err, &connect) || errors.As(err, &network) || pgconn.SafeToRetry(err)
}
