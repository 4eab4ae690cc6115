package sqldb_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestMove: SQLite to PostgreSQL and back, interrupted again and again at every step and table, leaves the same
// schema, rows and counters, byte for byte. No trigger fires, nothing can be opened before the end, and afterwards
// triggers and counters go on.
func TestMove(t *testing.T) {
	t.Parallel()
	first, second, third := dbtest.Migrated(t, sqldb.SQLite), dbtest.Open(t, sqldb.Postgres), dbtest.Open(t, sqldb.SQLite)
	fillForMove(t, first)
	want := dumpForMove(t, first)
	moveInPieces(t, first, second)
	if again, err := sqldb.Move(t.Context(), first, second, func(sqldb.MoveProgress) {}); err != nil || again.Rows < 6000 {
		t.Errorf("once more, after its end: %+v %v", again, err)
	}
	moveInPieces(t, second, third)
	if got := dumpForMove(t, third); !slices.Equal(got, want) {
		for i := range min(len(got), len(want)) {
			if got[i] != want[i] {
				t.Fatalf("the first difference:\n%.500s\n%.500s", got[i], want[i])
			}
		}
		t.Fatalf("%d lines, want %d", len(got), len(want))
	}
	if got := dumpForMove(t, first); !slices.Equal(got, want) {
		t.Error("the source has changed")
	}
	for _, database := range []string{second, third} {
		db := dbtest.NewSQL(t, dbtest.Connect(t, database))
		db.Exec(`INSERT INTO repositories (top_level_namespace_id, path, created_at) VALUES (1, 'n/new', 0)`)
		if id := db.Count(`SELECT id FROM repositories WHERE path = 'n/new'`); id != 42 { // 41 was the highest, and is deleted
			t.Errorf("%s: the next repository has id %d", db.DB.Engine(), id)
		}
		db.Exec(`INSERT INTO blobs (digest, path, size, media_type_id, created_at) VALUES ('new', 'new', 1, 1, 0)`)
		if n := db.Count(`SELECT count(*) FROM gc_blob_review_queue WHERE digest = 'new'`); n != 1 {
			t.Errorf("%s: the triggers are off: %d reviews", db.DB.Engine(), n)
		}
	}
}

// fillForMove writes rows that the engines could store or order in different ways, and more than one transaction takes.
func fillForMove(t *testing.T, database string) {
	t.Helper()
	db := dbtest.NewSQL(t, dbtest.Connect(t, database))
	rng := rand.New(rand.NewPCG(1, 2))
	names := []string{"", "a", "B", "Ä", "a b", "_", "~", "z\u00df", "日本", "a'\"\\;$1%", "\U0001F600", "line\nbreak\ttab"}
	db.Exec(`INSERT INTO top_level_namespaces (name, created_at) VALUES ('n', 1)`)
	for i := range 41 {
		db.Exec(`INSERT INTO repositories (top_level_namespace_id, path, created_at, deleting) VALUES (1, $1, $2, 1 = $3)`, fmt.Sprintf("n/r%d", i), i, i%2)
	}
	db.Exec(`DELETE FROM repositories WHERE id = 41`)
	db.Transact(func(b *sqldb.Batch) {
		for i := range 3000 {
			body := make([]byte, rng.IntN(64))
			if i%1000 == 7 {
				body = make([]byte, 3<<20) // some fill a transaction alone
			}
			for j := range body {
				body[j] = byte(rng.Uint32()) // also bytes that are no text
			}
			name := names[rng.IntN(len(names))] + fmt.Sprint(i)
			b.Exec(`INSERT INTO changes (revision, object, uid, kind, namespace, name, type, previous, body) VALUES ($1, $2, $3, 'things', $4, $5, 1, NULL, $6)`,
				int64(1)<<50+int64(i), i, name, names[i%len(names)], name, body)
			b.Exec(`INSERT INTO owners (dependent, owner_uid, blocking, controller) VALUES ($1, $2, 1 = $3, 1 = 0)`, i/len(names), names[i%len(names)], i%2)
		}
		b.Exec(`INSERT INTO changes (revision, object, uid, kind, namespace, name, type) VALUES (1, 1, 'u', 'things', '', 'gone', 3)`)
		for i, name := range names {
			b.Exec(`INSERT INTO console_sessions (id, user_name, client, link, created_at, expires_at) VALUES ($1, 'u', '', 1 = $2, 1, 2)`, name+"x", i%2)
			b.Exec(`INSERT INTO provisioned_resource_outbox (token, resource_id, event_type, payload, occurred_at) VALUES ($1, 'r', 'broker.ProvisionedResourceReady', $2, 0)`, "t"+name, name)
			b.Exec(`INSERT INTO provisioned_resource_published (token, sink) VALUES ($1, $2)`, "t"+name, name)
		}
		b.Exec(`UPDATE revision SET current = $1, compacted = 5`, int64(1)<<50+3000)
		b.Exec(`INSERT INTO blobs (digest, path, size, media_type_id, created_at, small) VALUES ('d', 'p', 0, 1, 0, 1 = 1)`)
		b.Exec(`INSERT INTO small_blobs (blob_id, content) VALUES (1, $1)`, []byte{})
		b.Exec(`DELETE FROM gc_settings`) // the copy has no rows that the source lacks
	})
}

// moveInPieces interrupts a move at a random report, until one ends.
func moveInPieces(t *testing.T, from, to string) {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, 4))
	for round := 0; ; round++ {
		ctx, cancel := context.WithCancel(t.Context())
		left := rng.IntN(6 + 8*round) // each comes further: an end is sure
		moved, err := sqldb.Move(ctx, from, to, func(sqldb.MoveProgress) {
			if left--; left < 0 {
				cancel()
			}
		})
		cancel()
		if err == nil {
			if round < 3 || moved.Rows < 6000 || moved.Tables < 50 {
				t.Errorf("%+v after %d interruptions", moved, round)
			}
			return
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if _, err := sqldb.Open(t.Context(), to); !errors.Is(err, sqldb.ErrUnfinished) {
			t.Fatalf("open a copy that is not complete: %v", err)
		}
	}
}

// dumpForMove lists schema, counters and rows of a SQLite database.
func dumpForMove(t *testing.T, database string) (lines []string) {
	t.Helper()
	db := dbtest.NewSQL(t, dbtest.Connect(t, database))
	lines = db.Strings(`SELECT type || ' ' || name || ' ' || coalesce(sql, '') FROM sqlite_schema ORDER BY type, name`)
	for _, table := range db.Strings(`SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name`) {
		columns := db.Strings(`SELECT 'quote("' || name || '")' FROM pragma_table_info($1)`, table)
		for _, row := range db.Strings(`SELECT ` + strings.Join(columns, ` || ',' || `) + ` AS line FROM ` + table + ` ORDER BY line`) {
			lines = append(lines, table+" "+row)
		}
	}
	return lines
}

// TestMoveRefuses: what a move refuses, and that it leaves both databases as they are.
func TestMoveRefuses(t *testing.T) {
	t.Parallel()
	lite, used := dbtest.Migrated(t, sqldb.SQLite), dbtest.Migrated(t, sqldb.Postgres)
	move := func(from, to string) error {
		_, err := sqldb.Move(t.Context(), from, to, func(sqldb.MoveProgress) {})
		return err
	}
	dbtest.NewSQL(t, dbtest.Connect(t, used)).Exec(`INSERT INTO gc_settings (name, value) VALUES ('x', true)`)
	if err := move(lite, used); !errors.Is(err, sqldb.ErrNotEmpty) {
		t.Errorf("into a database that is used: %v", err)
	}
	if err := move(lite, dbtest.Open(t, sqldb.SQLite)); err == nil || !strings.Contains(err.Error(), "same engine") {
		t.Errorf("to the same engine: %v", err)
	}
	if err := move(dbtest.Open(t, sqldb.SQLite), dbtest.Open(t, sqldb.Postgres)); err == nil || !strings.Contains(err.Error(), "migrate up first") {
		t.Errorf("from an empty database: %v", err)
	}
	leave := dbtest.Appear(t, dbtest.Connect(t, used))
	if err := move(used, dbtest.Open(t, sqldb.SQLite)); !errors.Is(err, sqldb.ErrRunning) {
		t.Errorf("while a server runs: %v", err)
	}
	leave()
}

// TestMoveOfAChangedSource: a source that was used between two attempts is found out, and named.
func TestMoveOfAChangedSource(t *testing.T) {
	t.Parallel()
	from, to := dbtest.Migrated(t, sqldb.SQLite), dbtest.Open(t, sqldb.Postgres)
	fillForMove(t, from)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := sqldb.Move(ctx, from, to, func(p sqldb.MoveProgress) {
		if p.Step == "verify" {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	dbtest.NewSQL(t, dbtest.Connect(t, from)).Exec(`UPDATE changes SET name = 'other' WHERE revision = 1`)
	_, err = sqldb.Move(t.Context(), from, to, func(sqldb.MoveProgress) {})
	if err == nil || !strings.Contains(err.Error(), "verify table changes: row revision 1: the copy differs from the source") {
		t.Errorf("a copy of two states: %v", err)
	}
	if _, err := sqldb.Open(t.Context(), to); !errors.Is(err, sqldb.ErrUnfinished) {
		t.Errorf("it can be opened: %v", err)
	}
}
