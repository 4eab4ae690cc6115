package dbtest

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/sqldb"
)

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
