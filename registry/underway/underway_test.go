package underway

import (
	"context"
	"strconv"
	"testing"

	"github.com/google/uuid"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

func TestMain(m *testing.M) { dbtest.MainBoth(m) }

// TestWorks: a work is listed until it ends or its lease does, only its own user changes it, and what users invent is bounded.
func TestWorks(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine), func(t *testing.T) {
			ctx := t.Context()
			db, err := sqldb.Open(ctx, dbtest.Open(t, engine))
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			list := func() []Work {
				t.Helper()
				all, err := List(ctx, db)
				if err != nil {
					t.Fatal(err)
				}
				return all
			}
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			w := Work{ID: uuid.NewString(), What: "import", By: "ann", Far: "1 of 3", Done: 1, Total: 3}
			must(w.Say(ctx, db))
			began := list()[0].Since
			w.Far, w.Done = "2 of 3", 2
			must(w.Say(ctx, db))
			other := w
			other.By, other.Far = "bob", "another"
			must(other.Say(ctx, db))
			must(other.End(ctx, db))
			got := list()
			if w.ID = ""; len(got) == 1 {
				w.Since = began
			}
			if len(got) != 1 || got[0] != w {
				t.Fatalf("listed %+v, want %+v", got, w)
			}
			for n := range 2 * most {
				must(Work{ID: uuid.NewString(), By: "eve" + strconv.Itoa(n%2)}.Say(ctx, db))
			}
			if n := len(list()); n != 1+2*mostOfOne {
				t.Errorf("two users have %d works", n-1)
			}
			for n := range 2 * most {
				must(Work{ID: uuid.NewString(), By: strconv.Itoa(n)}.Say(ctx, db))
			}
			if n := len(list()); n != most {
				t.Errorf("there are %d works", n)
			}
			must(db.Transact(ctx, func(tx *sqldb.Tx) error { return tx.Exec(ctx, "UPDATE works SET until = 0") }))
			if all := list(); len(all) > 0 {
				t.Errorf("without leases: %+v", all)
			}
			during, cancel := context.WithCancel(ctx)
			stop := Follow(during, db, func() Work { return Work{What: "verify"} })
			dbtest.Await(t, "the work is listed", func() bool { return len(list()) == 1 })
			cancel() // as Ctrl-C does
			stop()
			if all := list(); len(all) > 0 {
				t.Errorf("after its end: %+v", all)
			}
		})
	}
}
