package sqldb_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

func TestCorruptOfPostgres(t *testing.T) {
	for code, want := range map[string]bool{"XX001": true, "XX002": true, "XX000": false, "53100": false} {
		if got := sqldb.Corrupt(fmt.Errorf("read: %w", &pgconn.PgError{Code: code})); got != want {
			t.Errorf("%s: %v", code, got)
		}
	}
}

// TestCorruptAtOpen: the error says what is wrong and what to do.
func TestCorruptAtOpen(t *testing.T) {
	for name, damage := range map[string]func(file []byte) []byte{
		"not a database": func([]byte) []byte { return bytes.Repeat([]byte("this is no database\n"), 1000) },
		"malformed":      func(file []byte) []byte { return append(file[:100:100], bytes.Repeat([]byte{0xff}, len(file)-100)...) },
	} {
		t.Run(name, func(t *testing.T) {
			path := damaged(t, damage)
			db, err := sqldb.Open(t.Context(), path)
			if err == nil {
				_ = db.Close()
				t.Fatal("a damaged database was opened")
			}
			for _, want := range []string{path, name, "restore database and blobs", "docs/operating.md"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

// TestCorruptAtRunTime: a query reads a damaged page in the middle of the file.
func TestCorruptAtRunTime(t *testing.T) {
	const page = 4096
	path := damaged(t, func(file []byte) []byte {
		for i := 20 * page; i < len(file); i++ {
			file[i] = 0xff
		}
		return file
	})
	db, err := sqldb.Open(t.Context(), path)
	for _, table := range []string{"media_types", "objects", "changes", "blobs"} {
		if err == nil {
			var n int
			_, err = db.Row(t.Context(), "SELECT count(*) FROM "+table+" NOT INDEXED", nil, &n)
		}
	}
	if db != nil {
		_ = db.Close()
	}
	if !sqldb.Corrupt(err) {
		t.Errorf("a damaged page was read: %v", err)
	}
}

// damaged returns a database with rows whose file was changed.
func damaged(t *testing.T, damage func(file []byte) []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "exeunt.db")
	db := dbtest.Connect(t, path)
	for i := range 50 {
		if err := write(t, db, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Checkpoint(context.Background()); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy.db")
	if err := os.WriteFile(copied, damage(file), 0o600); err != nil {
		t.Fatal(err)
	}
	return copied
}
