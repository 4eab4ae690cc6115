package review_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
)

// remover reviews the things of a table: those without references are garbage.
type remover struct{}

func (remover) Review(ctx context.Context, tx review.Tx, _ time.Time, tasks []review.Task) ([]review.Verdict, error) {
	verdicts := make([]review.Verdict, len(tasks))
	var b sqldb.Batch
	for i, task := range tasks {
		verdicts[i] = review.Kept()
		b.Query(func(sqldb.Row) error { verdicts[i] = review.Acted(); return nil },
			`DELETE FROM example_things WHERE id = $1 AND refs = 0 RETURNING id`, task.Key)
	}
	return verdicts, tx.Send(ctx, &b)
}

// One turn of an engine: it claims the tasks that are due, reviews them, and settles them
// in the transaction in which the reviewer acted.
func ExampleEngine_RunOne() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "review")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	db, err := sqldb.Open(ctx, filepath.Join(dir, "example.db"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	queue := review.Queue{Name: "example", Table: "example_reviews", Key: "thing"}
	engine, err := review.New(db, queue, remover{}, review.Transactions(db), review.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	var b sqldb.Batch
	b.Exec(`CREATE TABLE example_things (id TEXT PRIMARY KEY, refs INTEGER NOT NULL) STRICT`)
	b.Exec(`CREATE TABLE example_reviews (thing TEXT PRIMARY KEY, review_after INTEGER NOT NULL, review_count INTEGER NOT NULL,
		event TEXT NOT NULL, created_at INTEGER NOT NULL, last_error TEXT, claim_token TEXT, claim_until INTEGER, traceparent TEXT) STRICT`)
	b.Exec(`INSERT INTO example_things VALUES ('used', 1), ('garbage', 0)`)
	for _, key := range []string{"used", "garbage"} { // a trigger would do this
		engine.Enqueue(&b, key, "unreferenced", time.Now())
	}
	if err := db.Transact(ctx, func(tx *sqldb.Tx) error { return tx.Send(ctx, &b) }); err != nil {
		fmt.Println(err)
		return
	}
	turn, err := engine.RunOne(ctx)
	fmt.Println("claimed", turn.Claimed, "settled", turn.Done, "acted", turn.Acted, err)
	// Output:
	// claimed 2 settled 2 acted 1 <nil>
}
