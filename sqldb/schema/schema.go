// Package schema holds the database schema as a list of migrations, with the same
// numbers and names for SQLite and PostgreSQL. A step after those of the first release
// has a way back, NNNN_name.down.sql, which says what it loses.
//
// To read the current schema, open sqlite.sql or postgres.sql: `go generate
// ./schema` writes them, and a test compares them with the result of the
// migrations. Package sqldb runs the migrations; a new SQLite file gets
// sqlite.sql instead, which takes a tenth of the time.
package schema

//go:generate go test . -run TestSnapshot -update

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
)

//go:embed sqlite/*.sql postgres/*.sql
var files embed.FS

// SQLite makes of an empty file what all migrations make of it: tables with their
// rows, and triggers in the same order, in which SQLite fires them.
//
//go:embed sqlite.sql
var SQLite string

// Migration is one step of the schema.
type Migration struct {
	Number int
	Name   string
	SQL    string
	// Down leads back to the step before. Empty if there is no way back.
	Down string
	// Loses says what Down loses, and Loss is a query that counts it. Empty means nothing.
	Loses, Loss string
}

var (
	fileName = regexp.MustCompile(`^([0-9]{4})_([a-z0-9_]+)\.sql$`)
	// losing is the first line of a way back that loses data.
	losing = regexp.MustCompile(`^-- loses (.+?): (SELECT .+)\n`)
)

// Fingerprint differs for two programs whose new SQLite files differ.
func Fingerprint() string {
	steps, _ := fs.ReadDir(files, "sqlite") // it is in the program
	return fmt.Sprint(SQLite, steps)
}

const downSuffix = ".down.sql"

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
		if strings.HasSuffix(entry.Name(), downSuffix) {
			continue // read with its step
		}
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
		m := Migration{Number: number, Name: parts[2], SQL: string(text)}
		if err := m.readDown(files, engine+"/"+strings.TrimSuffix(entry.Name(), ".sql")+downSuffix); err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// readDown reads the way back, if there is one.
func (m *Migration) readDown(files fs.FS, name string) error {
	text, err := fs.ReadFile(files, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read migration %s: %w", name, err)
	}
	m.Down = string(text)
	if found := losing.FindStringSubmatch(m.Down); found != nil {
		m.Loses, m.Loss = found[1], found[2]
	}
	return nil
}
