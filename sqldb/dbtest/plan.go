package dbtest

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/sqldb"
)

// storeScan matches SQLite's scan of one of the store's tables that grow, or of its alias.
var storeScan = regexp.MustCompile(`SCAN (o|c|d|a|r|w|objects|changes|owners|archive|archive_cascades|archive_spans|dropped_references)\b`)

// SearchesOnly checks statements of the store, by name: SQLite reads none of the tables that grow
// from its beginning.
func SearchesOnly(t *testing.T, statements map[string]string) {
	t.Helper()
	db := OpenDB(t, sqldb.SQLite)
	argument := regexp.MustCompile(`\$\d+`)
	for name, statement := range statements {
		if plan := Plan(t, sqldb.SQLite, db.Reader(), argument.ReplaceAllString(statement, "'x'")); storeScan.MatchString(plan) {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}

// Querier is a pool or a transaction.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Plan returns an engine's plan of a statement without arguments, one line per
// step.
func Plan(t testing.TB, engine sqldb.Engine, db Querier, statement string) string {
	t.Helper()
	explain := "EXPLAIN QUERY PLAN "
	if engine == sqldb.Postgres {
		explain = "EXPLAIN "
	}
	rows, err := db.QueryContext(t.Context(), explain+statement)
	if err != nil {
		t.Fatalf("%v\n%s", err, statement)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for rows.Next() {
		row := make([]any, len(columns)) // the last column is the text
		for i := range row {
			row[i] = new(any)
		}
		if err := rows.Scan(row...); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprint(*row[len(row)-1].(*any)))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
