package sqldb

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestTemplate: the first database that never waits for the disk becomes the template of the others, which have the same
// schema and rows; many that are first at the same time do not harm each other. A database that has anything in it, or in
// its log, is no copy.
func TestTemplate(t *testing.T) {
	cache := t.TempDir()
	for _, name := range []string{"XDG_CACHE_HOME", "HOME", "LocalAppData"} {
		t.Setenv(name, cache)
	}
	open := func(path string) (*DB, string) {
		db, err := OpenWithin(t.Context(), path, Limits{NoSync: true})
		if err != nil {
			t.Error(err)
			return nil, ""
		}
		t.Cleanup(func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
		return db, content(t, db)
	}
	var together sync.WaitGroup
	contents := make([]string, 6)
	for i := range contents {
		together.Go(func() { _, contents[i] = open(filepath.Join(t.TempDir(), "first.db")) })
	}
	together.Wait()
	db, copied := open(filepath.Join(t.TempDir(), "copy.db"))
	if !db.copied {
		t.Error("there is no template")
	}
	for _, text := range contents {
		if text != copied || !strings.Contains(text, "CREATE TRIGGER") || !strings.Contains(text, "step 1 ") {
			t.Errorf("a new database has\n%s\nand a copy\n%s", text, copied)
		}
	}
	if err := db.Write(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), "CREATE TABLE mine (n INTEGER)")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if again, text := open(db.path); again.copied || !strings.Contains(text, "CREATE TABLE mine") {
		t.Error("a database with a table became a copy of the template")
	}
	left := filepath.Join(t.TempDir(), "left.db")
	if err := os.WriteFile(left+"-wal", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if db, _ := open(left); db.copied {
		t.Error("a database with a log became a copy of the template")
	}
	if _, text := open(filepath.Join(t.TempDir(), "last.db")); strings.Contains(text, "CREATE TABLE mine") {
		t.Error("the template has what was written to a copy")
	}
}

// content is the schema of a database, with the list of its steps.
func content(t *testing.T, db *DB) string {
	var all []string
	err := Each(context.WithoutCancel(t.Context()), db, func(r Row) error {
		var text string
		err := r.Scan(&text)
		all = append(all, text)
		return err
	}, `SELECT coalesce(sql, name) FROM sqlite_schema UNION ALL SELECT 'step ' || number || ' ' || name FROM migrations`)
	if err != nil {
		t.Error(err)
	}
	return strings.Join(all, "\n")
}
