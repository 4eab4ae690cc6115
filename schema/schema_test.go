package schema_test

import (
	"database/sql"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exeunt/exeunt/schema"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

var update = flag.Bool("update", false, "write sqlite.sql and postgres.sql")

func TestMain(m *testing.M) { dbtest.Main(m) }

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

// TestSnapshot compares sqlite.sql and postgres.sql with what the migrations
// make of an empty database.
func TestSnapshot(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		dump, err := db.Dump(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		file := string(db.Engine()) + ".sql"
		text := "-- The current schema. Written by `go generate ./schema`: do not edit.\n\n" + dump
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

// TestReferencesSurvive: the step that makes the table of references again on
// SQLite leaves those that were there.
func TestReferencesSurvive(t *testing.T) {
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "exeunt.db")+"?_pragma=foreign_keys(1)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	exec := func(statement string) {
		t.Helper()
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%v\n%s", err, statement)
		}
	}
	steps, err := schema.Migrations("sqlite")
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range steps {
		if step.Name == "lighter_triggers" {
			exec(`INSERT INTO objects (id, uid, kind, namespace, name, revision) VALUES (1, 'o', 'k', '', 'o', 1), (2, 'd', 'k', '', 'd', 2)`)
			exec(`INSERT INTO owners VALUES (2, 'o', 1, 0), (2, 'gone', 0, 1)`)
		}
		exec(step.SQL)
	}
	list := func() (text string) {
		t.Helper()
		if err := db.QueryRow(`SELECT coalesce(group_concat(dependent || owner_uid || blocking || controller), '') FROM owners`).Scan(&text); err != nil {
			t.Fatal(err)
		}
		return text
	}
	if got := list(); got != "2gone01,2o10" {
		t.Errorf("references: %q", got)
	}
	exec(`DELETE FROM objects WHERE id = 2`)
	if got := list(); got != "" {
		t.Errorf("references of a removed object: %q", got)
	}
}
