package schema_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/sqldb/schema"
)

var update = flag.Bool("update", false, "write sqlite.sql and postgres.sql")

func TestMain(m *testing.M) { dbtest.MainBoth(m) }

func TestEnginesHaveTheSameMigrations(t *testing.T) {
	type step struct {
		Number int
		Name   string
	}
	list := func(engine string) (steps []step) {
		migrations, err := schema.Migrations(engine)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range migrations {
			if strings.TrimSpace(m.SQL) == "" {
				t.Errorf("%s step %d is empty", engine, m.Number)
			}
			steps = append(steps, step{m.Number, m.Name})
		}
		return steps
	}
	if diff := cmp.Diff(list("sqlite"), list("postgres")); diff != "" {
		t.Errorf("sqlite (-) and postgres (+) differ:\n%s", diff)
	}
	if _, err := schema.Migrations("oracle"); err == nil {
		t.Error("an engine that does not exist has migrations")
	}
}

// TestConstraintsHaveNames: every CHECK, UNIQUE and FOREIGN KEY has a name, the same
// on both engines. SQLite has one more: it has no booleans.
func TestConstraintsHaveNames(t *testing.T) {
	named := regexp.MustCompile(`CONSTRAINT (\w+)\s+(?:CHECK|UNIQUE|REFERENCES|FOREIGN KEY)`)
	unnamed := regexp.MustCompile(`\b(?:CHECK \(|UNIQUE\b|REFERENCES )`)
	list := func(file string) (names []string) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range regexp.MustCompile(`(?s)CREATE TABLE .*?\n\)`).FindAllString(string(text), -1) {
			for _, match := range named.FindAllStringSubmatch(table, -1) {
				if match[1] != "mesh_nodes_ready_check" {
					names = append(names, match[1])
				}
			}
			if file == "sqlite.sql" { // PostgreSQL prints a name for each
				if rest := unnamed.FindString(named.ReplaceAllString(table, "")); rest != "" {
					t.Errorf("%q without a name in\n%s", rest, table)
				}
			}
		}
		slices.Sort(names)
		return names
	}
	if diff := cmp.Diff(list("sqlite.sql"), list("postgres.sql")); diff != "" {
		t.Errorf("sqlite (-) and postgres (+) differ:\n%s", diff)
	}
}

// foreignKeysWithoutIndex lists the columns that refer to a table and begin no index.
var foreignKeysWithoutIndex = map[sqldb.Engine]string{
	sqldb.SQLite: `
SELECT t.name || '.' || f."from" FROM sqlite_schema t JOIN pragma_foreign_key_list(t.name) f
WHERE t.type = 'table' AND f."table" <> 'media_types'
    AND NOT EXISTS (SELECT 1 FROM pragma_table_info(t.name) p WHERE p.pk = 1 AND p.name = f."from")
    AND NOT EXISTS (
        SELECT 1 FROM pragma_index_list(t.name) i JOIN pragma_index_info(i.name) c WHERE c.seqno = 0 AND c.name = f."from" AND NOT i.partial)`,
	sqldb.Postgres: `
SELECT f.conrelid::regclass || '.' || a.attname FROM pg_constraint f JOIN pg_attribute a ON a.attrelid = f.conrelid AND a.attnum = f.conkey[1]
WHERE f.contype = 'f' AND f.confrelid <> 'media_types'::regclass
    AND NOT EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = f.conrelid AND i.indkey[0] = f.conkey[1] AND i.indpred IS NULL)`,
}

// TestForeignKeysHaveIndexes: who deletes a row looks for those that refer to it, by an index.
// Media types are never deleted.
func TestForeignKeysHaveIndexes(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		for _, column := range dbtest.NewSQL(t, db).Strings(foreignKeysWithoutIndex[db.Engine()]) {
			t.Errorf("no index begins with %s, which is a foreign key", column)
		}
	})
}

// TestSnapshot compares sqlite.sql and postgres.sql with what the migrations
// make of an empty database.
func TestSnapshot(t *testing.T) {
	eachEmpty(t, func(t *testing.T, db *sqldb.DB, _ string) {
		steps, err := db.Steps(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Up(t.Context(), len(steps)); err != nil { // step by step
			t.Fatal(err)
		}
		file := string(db.Engine()) + ".sql"
		text := "-- The current schema. Written by `go generate ./schema`: do not edit.\n\n" + dump(t, db)
		if *update {
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), text); diff != "" {
			t.Errorf("%s is not the schema that the migrations make; run go generate ./schema:\n%s", file, diff)
		}
	})
}

// TestNewFile: a new SQLite file, which gets sqlite.sql at once, is like one that had all migrations:
// schema, order of the triggers, rows, counters, list of the migrations, settings of the file.
func TestNewFile(t *testing.T) {
	state := func(up func(*sqldb.DB) error) string {
		db, err := sqldb.OpenAsIs(t.Context(), filepath.Join(t.TempDir(), "file.db"))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if err := up(db); err != nil {
			t.Fatal(err)
		}
		text := dump(t, db)
		for _, more := range []string{
			`SELECT number || ' ' || name FROM migrations ORDER BY 1`, `SELECT name || ' ' || seq FROM sqlite_sequence ORDER BY 1`,
			`SELECT user_version || ' ' || application_id || ' ' || auto_vacuum || ' ' || journal_mode || ' ' || encoding || ' ' || page_size
				FROM pragma_user_version, pragma_application_id, pragma_auto_vacuum, pragma_journal_mode, pragma_encoding, pragma_page_size`,
		} {
			text += strings.Join(dbtest.NewSQL(t, db).Strings(more), "\n") + "\n"
		}
		return text
	}
	steps, err := schema.Migrations("sqlite")
	if err != nil {
		t.Fatal(err)
	}
	migrated := state(func(db *sqldb.DB) error { return db.Up(t.Context(), len(steps)) })
	if diff := cmp.Diff(migrated, state(func(db *sqldb.DB) error { return db.Up(t.Context(), 0) })); diff != "" {
		t.Errorf("migrated (-) and new (+) differ:\n%s", diff)
	}
}
