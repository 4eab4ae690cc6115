package schema_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/sqldb/schema"
)

// firstRelease is the last step without a way back. A step after it needs one.
const firstRelease = 9

// TestWayBack: each step after the first release leads back to exactly the schema before
// it, and up again.
func TestWayBack(t *testing.T) {
	eachEmpty(t, func(t *testing.T, db *sqldb.DB, _ string) {
		steps, err := schema.Migrations(string(db.Engine()))
		if err != nil {
			t.Fatal(err)
		}
		up := func(to int) string {
			t.Helper()
			if err := db.Up(t.Context(), to); err != nil {
				t.Fatal(err)
			}
			return dump(t, db)
		}
		for to := firstRelease; to < len(steps); to++ {
			before := up(to)
			after := up(to + 1)
			if err := db.Down(t.Context(), to, false); err != nil {
				t.Fatalf("from step %d: %v", to+1, err)
			}
			if diff := cmp.Diff(before, dump(t, db)); diff != "" {
				t.Errorf("the way back from step %d makes another schema than step %d:\n%s", to+1, to, diff)
			}
			if diff := cmp.Diff(after, up(to+1)); diff != "" {
				t.Errorf("step %d, after the way back:\n%s", to+1, diff)
			}
		}
		if err := db.Down(t.Context(), firstRelease-1, true); !errors.Is(err, sqldb.ErrNoWayBack) {
			t.Errorf("down from the first release: %v", err)
		}
		if list, err := db.Steps(t.Context()); err != nil || !list[len(steps)-1].Done {
			t.Errorf("a refused way back has changed the database: %+v, %v", list, err)
		}
	})
}

// TestWayBackLoses: the way back refuses to lose data, unless it is told to, and while a
// server runs. SQLite has a copy of the file.
func TestWayBackLoses(t *testing.T) {
	eachEmpty(t, func(t *testing.T, db *sqldb.DB, database string) {
		if err := db.Up(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
		dbtest.NewSQL(t, db).Exec(`INSERT INTO quota_reviews (uid, review_after, review_count, event, created_at, traceparent) VALUES ('u', 0, 0, 'e', 0, 'trace')`)
		err := db.Down(t.Context(), 9, false)
		if !errors.Is(err, sqldb.ErrLoss) || !strings.Contains(err.Error(), "the traces of work that waits in the queues (1)") {
			t.Errorf("down without --lose-data: %v", err)
		}
		if db.Engine() == sqldb.Postgres {
			other := dbtest.Connect(t, database)
			leave := dbtest.Appear(t, other)
			if err := db.Down(t.Context(), 9, true); !errors.Is(err, sqldb.ErrRunning) {
				t.Errorf("down while a server runs: %v", err)
			}
			leave()
		}
		if err := db.Down(t.Context(), 9, true); err != nil {
			t.Fatal(err)
		}
		if list, err := db.Steps(t.Context()); err != nil || !list[8].Done || list[9].Done {
			t.Errorf("the steps after down: %+v, %v", list, err)
		}
		if db.Engine() == sqldb.SQLite {
			wantCopy(t, database+".step-10", 10)
			if err := db.Up(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			wantCopy(t, database+".step-9", 9)
		}
	})
}

// wantCopy checks that a copy has exactly so many steps, and that only its owner can read it.
func wantCopy(t *testing.T, path string, steps int) {
	t.Helper()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%s: %v %v", path, info, err)
	}
	db, err := sqldb.OpenAsIs(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	list, err := db.Steps(t.Context())
	if err != nil || !list[steps-1].Done || steps < len(list) && list[steps].Done {
		t.Errorf("%s has the steps %+v, want %d: %v", path, list, steps, err)
	}
}

func eachEmpty(t *testing.T, test func(t *testing.T, db *sqldb.DB, database string)) {
	t.Helper()
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			database := dbtest.Open(t, engine)
			db, err := sqldb.OpenAsIs(t.Context(), database)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			test(t, db, database)
		})
	}
}
