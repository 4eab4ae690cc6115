package dbtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/sqldb"
)

// Unreadable asks again while each of some tables of an SQLite database cannot be read: what ask answers without an error must be
// what it answers when all can.
func Unreadable(t testing.TB, db *sqldb.DB, tables string, ask func() (answer any, err error)) {
	t.Helper()
	answer := func() (string, error) {
		got, err := ask()
		return fmt.Sprintf("%+v", got), err
	}
	want, err := answer()
	if err != nil {
		t.Fatal(err)
	}
	rename := func(table, to string) {
		NewSQL(t, db).Transact(func(b *sqldb.Batch) {
			b.Exec("PRAGMA legacy_alter_table = ON") // triggers keep the old name
			b.Exec("ALTER TABLE " + table + " RENAME TO " + to)
			b.Exec("PRAGMA legacy_alter_table = OFF")
		})
	}
	refused := 0
	for table := range strings.FieldsSeq(tables) {
		rename(table, "unreadable")
		got, err := answer()
		rename("unreadable", table)
		switch {
		case err != nil:
			refused++
		case got != want:
			t.Errorf("while %s cannot be read: %s, want an error or %s", table, got, want)
		}
	}
	if refused == 0 {
		t.Errorf("none of %s is read: the test is void", tables)
	}
}
