// Package underway keeps a row for each work of another process that takes long, while it goes on: a verification
// of the registry, an import into it. It promises that every replica can say how far such a work is, and
// that what a killed process leaves is gone half a minute later. It knows nothing of the works.
package underway

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/sqldb"
)

const (
	// Every is how often a process says how far it is.
	Every = 5 * time.Second
	lease = 6 * Every
	// mostOfOne and most bound the rows of one user and of all: a client can invent works.
	mostOfOne, most = 8, 64
)

// Work is a work that goes on.
type Work struct {
	ID    string    `json:"-"`
	What  string    `json:"what"`
	By    string    `json:"by,omitempty"` // the user; empty for a command on the server's own data
	Since time.Time `json:"since"`        // set by the database
	Far   string    `json:"far"`          // how far it is, for people
	Done  int64     `json:"done"`
	Total int64     `json:"total"` // 0 if it is not known
}

// say writes or renews a row; only the user who made it can.
func say(now string) string {
	return fmt.Sprintf(`
INSERT INTO works (id, what, requested_by, began_at, until, far, done, total)
SELECT $1, $2, $3, %[1]s, %[1]s + $4, $5, $6, $7
WHERE (SELECT count(*) FROM works WHERE id <> $1) < %d AND (SELECT count(*) FROM works WHERE id <> $1 AND requested_by = $3) < %d
ON CONFLICT (id) DO UPDATE SET until = excluded.until, far = excluded.far, done = excluded.done, total = excluded.total
WHERE works.requested_by = excluded.requested_by`, now, most, mostOfOne)
}

const end = `DELETE FROM works WHERE id = $1 AND requested_by = $2`

// Say records how far a work is, for half a minute.
func (w Work) Say(ctx context.Context, db *sqldb.DB) error {
	now := db.Engine().Now()
	return db.Transact(ctx, func(tx *sqldb.Tx) error {
		var b sqldb.Batch
		b.Exec(`DELETE FROM works WHERE until <= ` + now)
		b.Exec(say(now), w.ID, w.What, w.By, lease.Milliseconds(), w.Far, w.Done, w.Total)
		return tx.Send(ctx, &b)
	})
}

// End removes the row of a work.
func (w Work) End(ctx context.Context, db *sqldb.DB) error {
	return db.Transact(ctx, func(tx *sqldb.Tx) error { return tx.Exec(ctx, end, w.ID, w.By) })
}

// Follow says how far the work of this process is until stop is called. It is no reason to stop the work if the
// database does not take it.
func Follow(ctx context.Context, db *sqldb.DB, far func() Work) (stop func()) {
	during, cancel := context.WithCancel(ctx)
	ended, id := make(chan struct{}), uuid.NewString()
	go func() {
		defer close(ended)
		for begun := true; begun; begun = task.Sleep(during, Every) {
			w := far()
			w.ID = id
			_ = w.Say(during, db)
		}
	}()
	return func() {
		cancel()
		<-ended
		_ = Work{ID: id}.End(context.WithoutCancel(ctx), db)
	}
}

// List returns the works that go on, the oldest first.
func List(ctx context.Context, db *sqldb.DB) (all []Work, err error) {
	err = sqldb.Each(ctx, db, func(row sqldb.Row) error {
		var w Work
		var began int64
		err := row.Scan(&w.What, &w.By, &began, &w.Far, &w.Done, &w.Total)
		w.Since = time.UnixMilli(began).UTC()
		all = append(all, w)
		return err
	}, `SELECT what, requested_by, began_at, far, done, total FROM works WHERE until > `+db.Engine().Now()+` ORDER BY began_at, id`)
	return all, err
}
