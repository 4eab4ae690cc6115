package sqldb_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

func TestFull(t *testing.T) {
	for _, test := range []struct {
		err  error
		want bool
	}{
		{fmt.Errorf("write: %w", &pgconn.PgError{Code: "53100"}), true},
		{&pgconn.PgError{Code: "53300"}, false}, // no connections left
		{errors.New("full"), false},
		{nil, false},
	} {
		if got := sqldb.Full(test.err); got != test.want {
			t.Errorf("%v: %v, want %v", test.err, got, test.want)
		}
	}

	db := dbtest.OpenDB(t, sqldb.SQLite)
	dbtest.Fill(t, db)
	if err := write(t, db, "a"); !sqldb.Full(err) || sqldb.Unreachable(err) {
		t.Errorf("no space: %v", err)
	}
	dbtest.Empty(t, db)
	if err := write(t, db, "b"); err != nil {
		t.Errorf("space again: %v", err)
	}
}

// write writes a row that needs a page of its own.
func write(t *testing.T, db *sqldb.DB, name string) error {
	tx, err := db.Begin(t.Context())
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var b sqldb.Batch
	b.Exec(`INSERT INTO media_types (media_type) VALUES ($1)`, name+strings.Repeat("x", 10_000))
	if err := tx.Send(t.Context(), &b); err != nil {
		return err
	}
	return tx.Commit(t.Context())
}
