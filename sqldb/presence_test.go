package sqldb_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestGone: Gone reports a token exactly when the process that made it is gone.
func TestGone(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine), func(t *testing.T) {
			database := dbtest.Open(t, engine)
			first, second := dbtest.Connect(t, database), dbtest.Connect(t, database)
			nameless := first.Token() // PostgreSQL: before the process has announced itself
			leave := dbtest.Appear(t, first)
			token := first.Token()
			if token == first.Token() || !strings.Contains(token, ".") {
				t.Errorf("token %q, and %q", token, first.Token())
			}
			expect := func(when string, db *sqldb.DB, want ...string) {
				t.Helper()
				tokens := []string{nameless, token, second.Token()}
				got, err := db.Gone(t.Context(), tokens)
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("%s: %q are gone of %q, %v; want %q", when, got, tokens, err, want)
				}
			}
			if engine == sqldb.SQLite { // there is one at a time, so all others are gone
				expect("the second", second, nameless, token)
				return
			}
			expect("one that is not there itself", second)
			dbtest.Appear(t, second)
			expect("both are there", second)
			leave()
			expect("the first is gone", second, token)
			if token := first.Token(); strings.Contains(token, ".") {
				t.Errorf("a process that left makes the token %q", token)
			}
		})
	}
}

// TestGoneElsewhere: a live process of another database on the same server counts as gone
// in this one.
func TestGoneElsewhere(t *testing.T) {
	here, elsewhere := dbtest.OpenDB(t, sqldb.Postgres), dbtest.OpenDB(t, sqldb.Postgres)
	dbtest.Appear(t, here)
	dbtest.Appear(t, elsewhere)
	token := elsewhere.Token()
	if got, err := here.Gone(t.Context(), []string{token}); err != nil || !slices.Equal(got, []string{token}) {
		t.Errorf("gone: %q, %v", got, err)
	}
}

// TestPresent: the processes that are alive, once this one is shown itself.
func TestPresent(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine), func(t *testing.T) {
			database := dbtest.Open(t, engine)
			first, second := dbtest.Connect(t, database), dbtest.Connect(t, database)
			expect := func(when string, want ...*sqldb.DB) {
				t.Helper()
				got, err := second.Present(t.Context())
				if err != nil || len(got) != len(want) {
					t.Errorf("%s: %v, %v; want %d processes", when, got, err, len(want))
				}
				for _, db := range want {
					if !got[db.Process()] {
						t.Errorf("%s: %v does not have %s", when, got, db.Process())
					}
				}
			}
			if engine == sqldb.SQLite { // there is one at a time
				expect("the second", second)
				return
			}
			leave := dbtest.Appear(t, first)
			expect("one that is not there itself")
			dbtest.Appear(t, second)
			expect("both are there", first, second)
			leave()
			expect("the first is gone", second)
		})
	}
}
