package review_test

import (
	"fmt"
	"testing"

	"github.com/exeunt/exeunt/review/reviewtest"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestCollector runs the suite with a reviewer that acts on the database only.
func TestCollector(t *testing.T) {
	runSuite(t, func() *disk { return nil })
}

// TestCollectorWithEffect runs the suite with a reviewer that also acts outside.
func TestCollectorWithEffect(t *testing.T) {
	runSuite(t, func() *disk { return &disk{things: map[string]bool{}} })
}

func runSuite(t *testing.T, newDisk func() *disk) {
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine), func(t *testing.T) {
			reviewtest.Run(t, func(t *testing.T) reviewtest.World {
				return newWorld(t, dbtest.OpenDB(t, engine), newDisk())
			})
		})
	}
}

func newWorld(t *testing.T, db *sqldb.DB, disk *disk) reviewtest.World {
	setUp(t, db)
	n := 0
	add := func(t *testing.T, refs int) string {
		n++
		key := fmt.Sprintf("thing-%03d", n)
		var b sqldb.Batch
		b.Exec(`INSERT INTO things (id, refs) VALUES ($1, 1)`, key)
		b.Exec(`UPDATE things SET refs = $2 WHERE id = $1`, key, refs)
		send(t, db, &b)
		if disk != nil {
			disk.set(key, true)
		}
		return key
	}
	found := func(t *testing.T, key string) bool {
		var refs int
		found, err := db.Row(t.Context(), `SELECT refs FROM things WHERE id = $1`, []any{key}, &refs)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	onDisk := func(key string) bool { return disk != nil && disk.has(key) }
	return reviewtest.World{
		DB: db, Queue: queue, Reviewer: collector{disk},
		Garbage:   func(t *testing.T) string { return add(t, 0) },
		Live:      func(t *testing.T) string { return add(t, 2) },
		Unknown:   "no such thing",
		Collected: func(t *testing.T, key string) bool { return !found(t, key) && !onDisk(key) },
		Intact:    func(t *testing.T, key string) bool { return found(t, key) && (disk == nil || onDisk(key)) },
	}
}
