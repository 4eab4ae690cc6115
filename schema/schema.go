// Package schema holds the database schema as a list of migrations, with the same
// numbers and names for SQLite and PostgreSQL. Migrations only go forward.
//
// To read the current schema, open sqlite.sql or postgres.sql: `go generate
// ./schema` writes them, and a test compares them with the result of the
// migrations. Package sqldb runs the migrations.
package schema

//go:generate go test . -run TestSnapshot -update

import (
	"embed"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
)

//go:embed sqlite/*.sql postgres/*.sql
var files embed.FS

// Migration is one step of the schema.
type Migration struct {
	Number int
	Name   string
	SQL    string
}

var fileName = regexp.MustCompile(`^([0-9]{4})_([a-z0-9_]+)\.sql$`)

// Migrations lists the steps for an engine, "sqlite" or "postgres", in order.
// Their numbers are 1, 2, 3 and so on.
func Migrations(engine string) ([]Migration, error) {
	return read(files, engine)
}

func read(files fs.FS, engine string) ([]Migration, error) {
	entries, err := fs.ReadDir(files, engine)
	if err != nil {
		return nil, fmt.Errorf("read migrations for %s: %w", engine, err)
	}
	var out []Migration
	for _, entry := range entries {
		parts := fileName.FindStringSubmatch(entry.Name())
		if parts == nil {
			return nil, fmt.Errorf("migration %s/%s: name is not NNNN_name.sql", engine, entry.Name())
		}
		number, err := strconv.Atoi(parts[1])
		if err != nil || number != len(out)+1 {
			return nil, fmt.Errorf("migration %s/%s: expected number %04d", engine, entry.Name(), len(out)+1)
		}
		text, err := fs.ReadFile(files, engine+"/"+entry.Name())
		if err != nil {
			return nil, fmt.Errorf("read migration %s/%s: %w", engine, entry.Name(), err)
		}
		out = append(out, Migration{Number: number, Name: parts[2], SQL: string(text)})
	}
	return out, nil
}
