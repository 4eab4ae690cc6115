package dbtest

import (
	"fmt"
	"net/url"
	"slices"
	"testing"

	"github.com/exeunt/exeunt/sqldb"
)

// Growth is a set of operations that must cost the same however much is stored.
type Growth struct {
	Few, Many int // what Fill stores
	Each      int // how often an operation runs
	Fill      func(db *sqldb.DB, size int)
	// Operations run in this order. Each has a database handle of its own.
	Operations []string
	// Run runs an operation Each times. With the empty name it only starts and stops what it
	// needs: that is subtracted.
	Run func(db *sqldb.DB, operation string)
	// Prepare stores what an operation needs, without being counted. May be nil.
	Prepare func(db *sqldb.DB, operation string)
	// Ignore is an index that is used at any moment, beside the operations. May be empty.
	Ignore string
}

// lookUps is what PostgreSQL counted: scans of indexes and of tables, and the entries and rows
// that they read. It does not count the entries that an index scan passes over, if it searches by
// a later column of the index.
type lookUps struct{ indexes, tables, read int64 }

func (l lookUps) String() string {
	return fmt.Sprintf("%d index scans, %d table scans, %d read", l.indexes, l.tables, l.read)
}

// Check runs the operations on two databases of PostgreSQL, one with few and one with many. Each
// must need the same scans in both, and read as much. What else runs in the meantime, like a
// compaction, only adds: if counts differ, it counts again, and compares the lowest.
func (g Growth) Check(t *testing.T) {
	t.Helper()
	few, many := map[string]lookUps{}, map[string]lookUps{}
	for range 3 {
		lowest(few, g.count(t, g.Few))
		lowest(many, g.count(t, g.Many))
		if !slices.ContainsFunc(g.Operations, func(name string) bool { return differ(few[name], many[name]) }) {
			break
		}
	}
	for _, name := range g.Operations {
		t.Logf("%-20s %v", name, few[name])
		if differ(few[name], many[name]) {
			t.Errorf("%s: %v with %d stored; %v with %d", name, few[name], g.Few, many[name], g.Many)
		}
	}
}

// lowest lowers the counts to those of another run.
func lowest(counts, other map[string]lookUps) {
	for name, b := range other {
		if a, counted := counts[name]; counted {
			b = lookUps{min(a.indexes, b.indexes), min(a.tables, b.tables), min(a.read, b.read)}
		}
		counts[name] = b
	}
}

// differ reports whether an operation costs something else with few than with many. Entries of
// removed rows count too, until they are vacuumed: a few more are no growth. Many less are a plan
// for few rows that PostgreSQL might keep when there are more.
func differ(few, many lookUps) bool {
	return few.indexes != many.indexes || few.tables != many.tables || max(few.read, many.read)-min(few.read, many.read) > few.read/2+2
}

// withoutAutovacuum keeps PostgreSQL from changing statistics, and so plans, between operations.
const withoutAutovacuum = `
DO $$
DECLARE
    name regclass;
BEGIN
    FOR name IN SELECT oid FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace LOOP
        EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off)', name);
    END LOOP;
END
$$`

// readLookUps leaves out the scans of tables that had few rows after Fill: PostgreSQL rightly
// prefers them to an index.
const readLookUps = `
SELECT i.scans, coalesce(sum(s.seq_scan), 0)::bigint, i.entries + coalesce(sum(s.seq_tup_read), 0)::bigint
FROM (SELECT sum(idx_scan)::bigint AS scans, sum(idx_tup_read)::bigint AS entries FROM pg_stat_user_indexes WHERE indexrelname <> $1) AS i
LEFT JOIN (pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid AND c.reltuples >= 100) ON true
GROUP BY i.scans, i.entries`

// count counts each operation, on average.
func (g Growth) count(t *testing.T, size int) map[string]lookUps {
	t.Helper()
	database := Migrated(t, sqldb.Postgres)
	watch := Connect(t, database)
	NewSQL(t, watch).Exec(withoutAutovacuum)
	during := func(fn func(db *sqldb.DB)) lookUps {
		t.Helper()
		before := readCounts(t, watch, g.Ignore)
		withConnection(t, database, watch, fn)
		after := readCounts(t, watch, g.Ignore)
		return lookUps{after.indexes - before.indexes, after.tables - before.tables, after.read - before.read}
	}
	during(func(db *sqldb.DB) { g.Fill(db, size) })
	if _, err := watch.Reader().ExecContext(t.Context(), `VACUUM (ANALYZE)`); err != nil {
		t.Fatal(err)
	}
	start := during(func(db *sqldb.DB) { g.Run(db, "") })
	each := int64(g.Each)
	average := func(all, start int64) int64 { return (all - start + each/2) / each }
	counts := map[string]lookUps{}
	for _, name := range g.Operations {
		if g.Prepare != nil {
			during(func(db *sqldb.DB) { g.Prepare(db, name) })
		}
		all := during(func(db *sqldb.DB) { g.Run(db, name) })
		counts[name] = lookUps{average(all.indexes, start.indexes), average(all.tables, start.tables), average(all.read, start.read)}
	}
	return counts
}

func readCounts(t *testing.T, db *sqldb.DB, ignore string) (l lookUps) {
	t.Helper()
	if _, err := db.Row(t.Context(), readLookUps, []any{ignore}, &l.indexes, &l.tables, &l.read); err != nil {
		t.Fatal(err)
	}
	return l
}

// withConnection runs fn with connections of its own, and waits for their end: PostgreSQL adds
// what a connection counted when it ends.
func withConnection(t *testing.T, database string, watch *sqldb.DB, fn func(db *sqldb.DB)) {
	t.Helper()
	const name = "measured"
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("application_name", name)
	u.RawQuery = query.Encode()
	db, err := sqldb.Open(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	fn(db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	const connected = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1`
	for NewSQL(t, watch).Count(connected, name) > 0 {
	}
}
