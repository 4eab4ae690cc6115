package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestMigrate: the way back and up again by the commands, which refuse to create a
// database, and a data directory that a server uses.
func TestMigrate(t *testing.T) {
	t.Parallel()
	database, data := dbtest.Migrated(t, sqldb.SQLite), t.TempDir()
	migrate := func(args ...string) (string, error) {
		root := newRoot()
		root.SetArgs(append([]string{"migrate"}, append(args, "--data", data)...))
		var out bytes.Buffer
		root.SetOut(&out)
		err := root.ExecuteContext(t.Context())
		return out.String(), err
	}
	for _, step := range []struct{ args, want, not string }{
		{"status", "0010 trace            done     way back, loses", "pending"},
		{"down --to 9", "0010 trace            pending", "0009 backup           pending"},
		{"up", "0010 trace            done", "pending"},
	} {
		out, err := migrate(append(strings.Fields(step.args), "--database", database)...)
		if err != nil || !strings.Contains(out, step.want) || strings.Contains(out, step.not) {
			t.Errorf("exeunt migrate %s: %v\n%s", step.args, err, out)
		}
	}
	if _, err := migrate("down", "--to", "3", "--database", database); err == nil || !strings.Contains(err.Error(), "there is no way back: restore a backup") {
		t.Errorf("down to step 3: %v", err)
	}
	if _, err := migrate("up"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("up without a database: %v", err)
	}
	if _, err := os.Stat(filepath.Join(data, "exeunt.db")); err == nil {
		t.Error("the command made a database")
	}
}

// TestMigrateBesideServer: down is refused while a server has the data directory.
func TestMigrateBesideServer(t *testing.T) {
	p := place{data: filepath.Join(t.TempDir(), "data")}
	s := p.serve(t)
	root := newRoot()
	root.SetArgs([]string{"migrate", "down", "--to", "9", "--data", p.data})
	if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "a server uses the data directory") {
		t.Errorf("down beside a server: %v", err)
	}
	s.stop(t)
}
