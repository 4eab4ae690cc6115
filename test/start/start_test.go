// Package start_test measures how long the real server takes to start, with
// nothing stored and with a million objects, in turns:
//
//	cd test && ../script/postgres go test ./start -run '^$' -bench . -benchtime 15x
package start_test

import (
	"database/sql"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/exeunt/exeunt/test/harness"
)

var objects = flag.Int("objects", 1_000_000, "how many objects are stored")

func TestMain(m *testing.M) {
	harness.GOGC = "" // time and memory of a user's server are measured
	os.Exit(m.Run())
}

// BenchmarkStart measures the time from the start of the process until it is ready: the
// medians with an empty and with a full database, and their ratio.
func BenchmarkStart(b *testing.B) {
	for _, engine := range []string{harness.SQLite, harness.Postgres} {
		b.Run(engine, func(b *testing.B) {
			empty, full := harness.Start(b, engine), harness.Start(b, engine)
			empty.Stop()
			full.Stop()
			fill(b, full, *objects)
			startAndStop(full) // the first start reads the rows that fill left in the log
			var without, with []time.Duration
			for b.Loop() {
				without = append(without, startAndStop(empty))
				with = append(with, startAndStop(full))
			}
			slices.Sort(without)
			slices.Sort(with)
			e, f := without[len(without)/2], with[len(with)/2]
			b.ReportMetric(float64(e.Microseconds())/1000, "empty-ms")
			b.ReportMetric(float64(f.Microseconds())/1000, "full-ms")
			b.ReportMetric(float64(f)/float64(e), "full/empty")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func startAndStop(s *harness.Server) time.Duration {
	begin := time.Now()
	s.Start()
	took := time.Since(begin)
	s.Kill()
	return took
}

// fill writes ConfigMaps into the database of a stopped server: each thousandth one owns
// those that follow it.
func fill(b *testing.B, s *harness.Server, n int) {
	b.Helper()
	driver, series := "pgx", `SELECT generate_series(1, %d) AS i`
	if s.Engine == harness.SQLite {
		driver, series = "sqlite", `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT i FROM n`
	}
	db, err := sql.Open(driver, s.Database)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	var first int64
	if err := db.QueryRow(`SELECT current FROM revision`).Scan(&first); err != nil {
		b.Fatal(err)
	}
	numbers := "(" + fmt.Sprintf(series, n) + ") AS s"
	body := `'{"metadata":{"name":"o' || s.i || '","namespace":"default","uid":"start-' || s.i || '","creationTimestamp":"2026-01-01T00:00:00Z"},"data":{"a":"b"}}'`
	if s.Engine == harness.Postgres {
		body = `convert_to(` + body + `, 'UTF8')`
	} else {
		body = `CAST(` + body + ` AS BLOB)`
	}
	for _, statement := range []string{
		fmt.Sprintf(`INSERT INTO changes (revision, object, uid, kind, namespace, name, type, body)
			SELECT %d + s.i, %d + s.i, 'start-' || s.i, 'configmaps', 'default', 'o' || s.i, 1, %s FROM %s`, first, first, body, numbers),
		fmt.Sprintf(`INSERT INTO objects (id, uid, kind, namespace, name, revision)
			SELECT %d + s.i, 'start-' || s.i, 'configmaps', 'default', 'o' || s.i, %d + s.i FROM %s`, first, first, numbers),
		fmt.Sprintf(`INSERT INTO owners (dependent, owner_uid, blocking, controller)
			SELECT %d + s.i, 'start-' || (s.i / 1000 * 1000), %s FROM %s WHERE s.i > 1000 AND s.i %% 1000 <> 0`,
			first, map[string]string{harness.SQLite: "1, 1", harness.Postgres: "true, true"}[s.Engine], numbers),
		// As a server that stored them would leave it: it keeps the last 200,000 changes.
		fmt.Sprintf(`UPDATE revision SET current = current + %d, compacted = current + %d`, n, max(0, n-200_000)),
	} {
		if _, err := db.Exec(statement); err != nil {
			b.Fatalf("%v: %s", err, statement)
		}
	}
}
