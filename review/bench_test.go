package review_test

import (
	"testing"
	"time"

	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

const (
	fillSQLite = `
WITH RECURSIVE series (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM series WHERE value < $1)
INSERT INTO thing_reviews (thing, review_after, review_count, event, created_at)
SELECT lower(hex(randomblob(16))), $2 + value, 0, 'bench', $2 FROM series`
	fillPostgres = `
INSERT INTO thing_reviews (thing, review_after, review_count, event, created_at)
SELECT md5(value::text), $2 + value, 0, 'bench', $2 FROM generate_series(1, $1::bigint) value`
)

// BenchmarkDrain measures the cost of a task without its review: claim, hold, settle. The
// queue has b.N tasks, so a cost that depends on the queue's length shows.
func BenchmarkDrain(b *testing.B) {
	for _, engine := range dbtest.Engines() {
		b.Run(string(engine), func(b *testing.B) {
			f := newFixture(b, dbtest.OpenDB(b, engine))
			fill := fillSQLite
			if engine == sqldb.Postgres {
				fill = fillPostgres
			}
			var batch sqldb.Batch
			batch.Exec(fill, b.N, f.now.UnixMilli())
			send(b, f.db, &batch)
			f.now = f.now.Add(24 * time.Hour)
			q := queue
			q.Batch = 500
			e := f.engine(q, by(func(review.Task) review.Verdict { return review.Kept() }), review.Options{})
			b.ResetTimer()
			for done := 0; done < b.N; {
				r := f.turn(e)
				if r.Done == 0 {
					b.Fatalf("%d of %d done, then %+v", done, b.N, r)
				}
				done += r.Done
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
		})
	}
}
