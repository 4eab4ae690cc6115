package sqldb_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/exeunt/exeunt/sqldb"
)

func TestUnreachable(t *testing.T) {
	for _, test := range []struct {
		err  error
		want bool
	}{
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, true},
		{fmt.Errorf("read: %w", io.ErrUnexpectedEOF), true},
		{&pgconn.PgError{Code: "57P01"}, true},  // an administrator stops the server
		{&pgconn.PgError{Code: "57P03"}, true},  // it starts
		{&pgconn.PgError{Code: "53300"}, true},  // no connections left
		{&pgconn.PgError{Code: "23505"}, false}, // a key twice
		{&pgconn.PgError{Code: "57014"}, true},  // the limit of a statement, or a session cancelled it
		{&pgconn.PgError{Code: "55P03"}, true},  // the limit of a wait for a lock
		{&pgconn.PgError{Code: "25P03"}, true},  // the limit of an idle transaction
		{context.DeadlineExceeded, false},
		{errors.New("no such table"), false},
		{nil, false},
	} {
		if got := sqldb.Unreachable(test.err); got != test.want {
			t.Errorf("%v: %v, want %v", test.err, got, test.want)
		}
	}
	if _, err := sqldb.Open(t.Context(), "postgres://user@127.0.0.1:1/db"); !sqldb.Unreachable(err) {
		t.Errorf("a port where no server listens: %v; want Unreachable", err)
	}
}
