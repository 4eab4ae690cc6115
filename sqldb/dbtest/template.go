package dbtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/exeunt/exeunt/sqldb"
)

// template is a migrated database. Tests get copies of it, because migrating takes
// longer than most tests.
type template struct {
	made  sync.Once
	err   error
	place string       // a file, or a database of the server
	body  []byte       // of the file
	drop  func() error // nil if there is nothing to remove
}

var sqliteTemplate, postgresTemplate template

// Migrated makes a migrated database for the time of a test and returns the
// string that [sqldb.Open] takes.
func Migrated(t testing.TB, engine sqldb.Engine) (database string) {
	t.Helper()
	if !inMain.Load() { // without Main, the template is never removed
		return Open(t, engine)
	}
	switch engine {
	case sqldb.SQLite:
		sqliteTemplate.make(t, sqliteTemplate.makeSQLite)
		database = Open(t, engine)
		if err := os.WriteFile(database, sqliteTemplate.body, 0o600); err != nil {
			t.Fatal(err)
		}
		return database
	case sqldb.Postgres:
		admin := serverURL(t)
		postgresTemplate.make(t, func() error { return postgresTemplate.makePostgres(admin) })
		return createDatabase(t, postgresTemplate.place)
	}
	t.Fatalf("no such engine: %q", engine)
	return ""
}

func (m *template) make(t testing.TB, make func() error) {
	t.Helper()
	m.made.Do(func() { m.err = make() })
	if m.err != nil {
		t.Fatalf("make the template of the databases: %v", m.err)
	}
}

func (m *template) makeSQLite() error {
	dir, err := os.MkdirTemp("", "exeunt-template-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	m.place = filepath.Join(dir, "exeunt.db")
	if err := migrate(m.place); err != nil {
		return err
	}
	if _, err := os.Stat(m.place + "-wal"); err == nil {
		return fmt.Errorf("%s was closed and its log is still there", m.place)
	}
	m.body, err = os.ReadFile(m.place)
	return err
}

func (m *template) makePostgres(admin string) error {
	m.place = newName()
	if err := creates.execute(context.Background(), admin, "CREATE DATABASE "+m.place); err != nil {
		return err
	}
	m.drop = func() error { return drops.execute(context.Background(), admin, dropDatabase(m.place)) }
	database, err := inServer(admin, m.place)
	if err != nil {
		return err
	}
	return migrate(database)
}

func migrate(database string) error {
	db, err := sqldb.Open(context.Background(), database)
	if err != nil {
		return err
	}
	return db.Close()
}

// removeTemplates must be called after the last test.
func removeTemplates() {
	if postgresTemplate.drop == nil {
		return
	}
	if err := postgresTemplate.drop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
