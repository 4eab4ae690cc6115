package dbtest

import (
	"database/sql"
	"testing"

	"github.com/exeunt/exeunt/sqldb"
)

// SQL runs statements for a test, beside the code under test. A failure ends the
// test.
type SQL struct {
	t  testing.TB
	DB *sqldb.DB
}

// NewSQL is SQL on a database.
func NewSQL(t testing.TB, db *sqldb.DB) SQL { return SQL{t, db} }

// Try sends statements in one transaction, and returns its error.
func (s SQL) Try(fn func(b *sqldb.Batch)) error {
	return s.DB.Transact(s.t.Context(), func(tx *sqldb.Tx) error {
		var b sqldb.Batch
		fn(&b)
		return tx.Send(s.t.Context(), &b)
	})
}

// Transact sends statements in one transaction.
func (s SQL) Transact(fn func(b *sqldb.Batch)) {
	s.t.Helper()
	if err := s.Try(fn); err != nil {
		s.t.Fatal(err)
	}
}

// Exec runs one statement in a transaction of its own.
func (s SQL) Exec(statement string, args ...any) {
	s.t.Helper()
	if err := s.Try(func(b *sqldb.Batch) { b.Exec(statement, args...) }); err != nil {
		s.t.Fatalf("%v\n%s", err, statement)
	}
}

// Count reads one number.
func (s SQL) Count(statement string, args ...any) (n int) {
	s.t.Helper()
	if _, err := s.DB.Row(s.t.Context(), statement, args, &n); err != nil {
		s.t.Fatalf("%v\n%s", err, statement)
	}
	return n
}

// Strings reads one column; null is the empty string.
func (s SQL) Strings(statement string, args ...any) (list []string) {
	s.t.Helper()
	rows, err := s.DB.Reader().QueryContext(s.t.Context(), statement, args...)
	if err != nil {
		s.t.Fatalf("%v\n%s", err, statement)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var text sql.NullString
		if err := rows.Scan(&text); err != nil {
			s.t.Fatalf("%v\n%s", err, statement)
		}
		list = append(list, text.String)
	}
	if err := rows.Err(); err != nil {
		s.t.Fatalf("%v\n%s", err, statement)
	}
	return list
}
