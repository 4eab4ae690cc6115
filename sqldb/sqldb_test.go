package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

func TestMain(m *testing.M) { dbtest.MainBoth(m) }

func TestOpenRefuses(t *testing.T) {
	for _, database := range []string{"", ":memory:", "mysql://host/db", filepath.Join(t.TempDir(), "no", "such", "dir"), "postgres://host:nonsense/db"} {
		if db, err := sqldb.Open(t.Context(), database); err == nil {
			t.Errorf("opened %q", database)
			_ = db.Close()
		}
	}
}

func TestOpenKeepsThePasswordToItself(t *testing.T) {
	_, err := sqldb.Open(t.Context(), "postgres://user:s3cret@localhost:1/db?connect_timeout=1")
	if err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("got error %v", err)
	}
}

func TestSQLiteSettings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "strange name?#%.db")
	db := dbtest.Connect(t, path)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("file: %v, %v", info, err)
	}
	for pragma, want := range map[string]string{
		"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "auto_vacuum": "2", "journal_size_limit": "67108864",
	} {
		err := db.Write(t.Context(), func(tx *sql.Tx) error {
			var got string
			if err := tx.QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != want {
				t.Errorf("%s is %q: %v", pragma, got, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestOpenAgain(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine), func(t *testing.T) {
			database := dbtest.Open(t, engine)
			var together sync.WaitGroup
			for range 4 { // replicas that start at the same time
				together.Go(func() {
					db, err := sqldb.Open(t.Context(), database)
					if err != nil {
						t.Error(err)
						return
					}
					if err := db.Close(); err != nil {
						t.Error(err)
					}
				})
			}
			together.Wait()
		})
	}
}

func TestOpenRefusesAnotherSchema(t *testing.T) {
	for name, test := range map[string]struct{ statement, want string }{
		"newer":        {"INSERT INTO migrations (number, name) VALUES (9999, 'from_the_future')", "newer version"},
		"newer twice":  {"INSERT INTO migrations (number, name) VALUES (9998, 'x@v8.0.0'), (9999, 'y@v9.1.0')", "at step 9999 (y), but"},
		"of a version": {"INSERT INTO migrations (number, name) VALUES (9998, 'x@v8.0.0'), (9999, 'y@v9.1.0')", "install exeunt v9.1.0"},
		"not our own":  {"UPDATE migrations SET name = 'strange' WHERE number = 1", "belongs to something else"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, engine := range dbtest.Engines() {
				t.Run(string(engine), func(t *testing.T) {
					database := dbtest.Open(t, engine)
					dbtest.NewSQL(t, dbtest.Connect(t, database)).Exec(test.statement)
					db, err := sqldb.Open(t.Context(), database)
					if err == nil {
						_ = db.Close()
						t.Fatal("opened")
					}
					if !strings.Contains(err.Error(), test.want) {
						t.Errorf("got error %v", err)
					}
				})
			}
		})
	}
}

// TestOpenRefusesTheOldNumbering: a database from before the first release is
// refused with its remedy, and stays as it is.
func TestOpenRefusesTheOldNumbering(t *testing.T) {
	const (
		names = `objects collect archive registry registry_collect broker mesh collect_sets repository_objects registry_undelete small_blobs
			upload_state registry_lock_order scan damaged_blobs lighter_triggers enqueue_sets has_dependents review_sets restrict_blobs
			blob_ids review_together blob_digests data_id sealed event_ttl owner_identity archive_actors`
		want = "before the first release made this database, and there is no migration from those versions: start with a new database"
		list = `SELECT coalesce(string_agg(number || ' ' || name, ', '), '') FROM (SELECT number, name FROM migrations ORDER BY number) AS s`
	)
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine), func(t *testing.T) {
			database := dbtest.Open(t, engine)
			db := dbtest.Connect(t, database)
			dbtest.NewSQL(t, db).Exec("DELETE FROM migrations")
			for i, name := range strings.Fields(names) {
				dbtest.NewSQL(t, db).Exec(fmt.Sprintf("INSERT INTO migrations (number, name) VALUES (%d, '%s')", i+1, name))
			}
			var before, after string
			if _, err := db.Row(t.Context(), list, nil, &before); err != nil {
				t.Fatal(err)
			}
			again, err := sqldb.Open(t.Context(), database)
			if err == nil {
				_ = again.Close()
				t.Fatal("opened")
			}
			if !strings.Contains(err.Error(), want) {
				t.Errorf("got error %v", err)
			}
			if _, err := db.Row(t.Context(), list, nil, &after); err != nil || after != before {
				t.Errorf("the steps were %s, and are %s: %v", before, after, err)
			}
		})
	}
}

func current(t *testing.T, db *sqldb.DB) (n int64) {
	t.Helper()
	if found, err := db.Row(t.Context(), "SELECT current FROM revision WHERE one = $1", []any{1}, &n); err != nil || !found {
		t.Fatal(found, err)
	}
	return n
}

func TestWrite(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		dbtest.NewSQL(t, db).Exec("UPDATE revision SET current = 5")
		refused := errors.New("no")
		err := db.Write(t.Context(), func(tx *sql.Tx) error {
			if _, err := tx.Exec("UPDATE revision SET current = 6"); err != nil {
				t.Error(err)
			}
			return refused
		})
		if !errors.Is(err, refused) || current(t, db) != 5 {
			t.Errorf("current is %d after %v", current(t, db), err)
		}
		if _, err := db.Reader().Exec("UPDATE revision SET current = 7"); err == nil {
			t.Error("the reader wrote")
		}
		var n int64
		if found, err := db.Row(t.Context(), "SELECT current FROM revision WHERE one = $1", []any{2}, &n); found || err != nil {
			t.Errorf("found %v, %v", found, err)
		}
	})
}

func TestSend(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		for round := range int64(3) { // the statements are prepared in the first
			tx, err := db.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var seen []int64
			var b sqldb.Batch
			b.Exec("UPDATE revision SET current = current + $1", round)
			b.Query(func(row sqldb.Row) error {
				var n int64
				err := row.Scan(&n)
				seen = append(seen, n)
				return err
			}, "SELECT current FROM revision UNION ALL SELECT compacted FROM revision")
			if err := tx.Send(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
			if len(seen) != 2 || seen[0] != 1+round {
				t.Errorf("round %d saw %v", round, seen)
			}
			tx.Rollback()
			tx.Rollback() // does nothing
		}
		tx, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var b sqldb.Batch
		b.Exec("UPDATE revision SET current = $1", 10)
		b.Exec("UPDATE revision SET current = NULL")
		if err := tx.Send(t.Context(), &b); err == nil {
			t.Error("a refused statement made no error")
		}
		tx.Rollback()
		if n := current(t, db); n != 1 {
			t.Errorf("current is %d after a rollback", n)
		}
	})
}

// TestTransactionsEnd: every way to end a transaction returns its connection, and the next
// transaction is separate. The test runs more transactions than there are connections.
func TestTransactionsEnd(t *testing.T) {
	ends := map[string]func(t *testing.T, tx *sqldb.Tx){
		"commit of nothing":   func(t *testing.T, tx *sqldb.Tx) { commit(t, tx) },
		"rollback of nothing": func(_ *testing.T, tx *sqldb.Tx) { tx.Rollback() },
		"commit": func(t *testing.T, tx *sqldb.Tx) {
			if err := send(t, tx, "UPDATE revision SET compacted = compacted + 1"); err != nil {
				t.Error(err)
			}
			commit(t, tx)
			if send(t, tx, "UPDATE revision SET current = 7") == nil || tx.Commit(t.Context()) == nil {
				t.Error("a transaction accepted a statement after its end")
			}
		},
		"rollback": func(t *testing.T, tx *sqldb.Tx) {
			if err := send(t, tx, "UPDATE revision SET current = 7"); err != nil {
				t.Error(err)
			}
			tx.Rollback()
		},
		"failure": func(t *testing.T, tx *sqldb.Tx) {
			if send(t, tx, "UPDATE revision SET current = NULL") == nil {
				t.Error("a refused statement made no error")
			}
			tx.Rollback()
		},
		"failure to prepare": func(t *testing.T, tx *sqldb.Tx) {
			if send(t, tx, "UPDATE nonsense SET current = 7") == nil {
				t.Error("a statement on a missing table made no error")
			}
			tx.Rollback()
		},
	}
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		const rounds = 20
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // fails if a connection is not returned
		defer cancel()
		for range rounds {
			for name, end := range ends {
				tx, err := db.Begin(ctx)
				if err != nil {
					t.Fatalf("before %s: %v", name, err)
				}
				end(t, tx)
				tx.Rollback() // does nothing
			}
		}
		var current, compacted int64
		if _, err := db.Row(t.Context(), "SELECT current, compacted FROM revision", nil, &current, &compacted); err != nil {
			t.Fatal(err)
		}
		if current != 1 || compacted != rounds {
			t.Errorf("current is %d and compacted %d, not 1 and %d", current, compacted, rounds)
		}
	})
}

// readers is how many connections each engine has for reads.
var readers = map[sqldb.Engine]int{sqldb.SQLite: 8, sqldb.Postgres: 16}

// TestRowWaitsForItsContext: if reads hold every connection of the pool, a read by key
// waits only as long as its context allows.
func TestRowWaitsForItsContext(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		for range readers[db.Engine()] {
			tx, err := db.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Close()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		done := make(chan error, 1)
		var n int64
		go func() {
			_, err := db.Row(ctx, "SELECT current FROM revision", nil, &n)
			done <- err
		}()
		select {
		case err := <-done:
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the read ended with %v", err)
			}
		case <-time.After(dbtest.Patience):
			t.Fatal("the read waits for a connection long after its context has ended")
		}
	})
}

// TestSnapshotNeedsNoSecondConnection: a transaction reads although transactions hold every
// other connection, also by a statement that was never prepared.
func TestSnapshotNeedsNoSecondConnection(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var txs []*sqldb.Snapshot
		for range readers[db.Engine()] {
			tx, err := db.Snapshot(ctx)
			if err != nil {
				t.Fatal(err)
			}
			txs = append(txs, tx)
		}
		for round := range 2 {
			for _, tx := range txs {
				if _, err := sqldb.First(ctx, tx, []any{new(int)}, "SELECT 1"); err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
			}
		}
		for _, tx := range txs {
			tx.Close()
		}
	})
}

// TestCommitAfterFailure: PostgreSQL answers the COMMIT of a failed transaction without an
// error.
func TestCommitAfterFailure(t *testing.T) {
	tx, err := dbtest.OpenDB(t, sqldb.Postgres).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if send(t, tx, "UPDATE revision SET current = NULL") == nil {
		t.Error("a refused statement made no error")
	}
	if tx.Commit(t.Context()) == nil {
		t.Error("the commit of a transaction that failed made no error")
	}
}

func send(t *testing.T, tx *sqldb.Tx, statement string) error {
	var b sqldb.Batch
	b.Exec(statement)
	return tx.Send(t.Context(), &b)
}

func commit(t *testing.T, tx *sqldb.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestListen(t *testing.T) {
	db := dbtest.OpenDB(t, sqldb.Postgres)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	heard := make(chan string)
	ended := make(chan error, 1)
	go func() { ended <- db.Listen(ctx, "a channel", func(payload string) { heard <- payload }) }()
	if first := <-heard; first != "" {
		t.Errorf("first heard %q", first)
	}
	dbtest.NewSQL(t, db).Exec(`SELECT pg_notify('a channel', 'hello')`)
	if payload := <-heard; payload != "hello" {
		t.Errorf("heard %q", payload)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}
