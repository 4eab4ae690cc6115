package review_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

const (
	traceOne = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	traceTwo = "00-5bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
)

// parent is a reviewer that enqueues one more task for each batch.
type parent struct{ batches map[string]bool }

func (p parent) Review(ctx context.Context, tx review.Tx, now time.Time, tasks []review.Task) ([]review.Verdict, error) {
	var keys []string
	for _, task := range tasks {
		keys = append(keys, task.Key)
	}
	batch := strings.Join(keys, " ")
	p.batches[batch] = true
	var b sqldb.Batch
	b.Exec(`INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at) VALUES ($1, $2, 0, 'test', 0)`,
		"after "+batch, now.Add(time.Hour).UnixMilli())
	verdicts := make([]review.Verdict, len(tasks))
	for i := range verdicts {
		verdicts[i] = review.Acted()
	}
	return verdicts, tx.Send(ctx, &b)
}

// TestTracesAreSeparate: tasks of different traces are reviewed in transactions of their own,
// and what each enqueues has its trace, on a replica that sends no traces too.
func TestTracesAreSeparate(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		rows := dbtest.NewSQL(t, db)
		for i, row := range [][2]string{{"a", traceOne}, {"b", ""}, {"c", traceTwo}, {"d", traceOne}, {"e", ""}} {
			rows.Exec(fmt.Sprintf(`INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at, traceparent)
				VALUES ('%s', %d, 0, 'test', 0, nullif('%s', ''))`, row[0], i, row[1]))
		}
		p := parent{map[string]bool{}}
		e, err := review.New(db, review.Queue{Name: "objects", Table: "gc_object_reviews", Key: "uid"}, p, review.Transactions(db), review.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := e.RunOne(t.Context()); err != nil || r.Done != 5 || r.Claimed != 5 {
			t.Fatalf("%+v, %v", r, err)
		}
		if diff := cmp.Diff(map[string]bool{"a d": true, "b e": true, "c": true}, p.batches); diff != "" {
			t.Error(diff)
		}
		want := []string{"after a d " + traceOne, "after b e none", "after c " + traceTwo}
		if diff := cmp.Diff(want, rows.Strings(`SELECT uid || ' ' || coalesce(traceparent, 'none') FROM gc_object_reviews ORDER BY uid`)); diff != "" {
			t.Error(diff)
		}
	})
}
