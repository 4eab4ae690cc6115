package pagealloc

import (
	"database/sql"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"modernc.org/libc"
	_ "modernc.org/sqlite"
)

// TestBlocks: blocks keep their content while others are allocated and freed, never
// overlap, and have the sizes that are reported to SQLite.
func TestBlocks(t *testing.T) {
	tls := libc.NewTLS()
	defer tls.Close()
	type block struct {
		at   uintptr
		size int32
		mark byte
	}
	random := rand.New(rand.NewPCG(1, 2))
	size := func() int32 { return 1 + random.Int32N(1<<(1+random.IntN(largestBlock+1))) }
	fill := func(b block) {
		for i := range b.size {
			*at[byte](b.at + uintptr(i)) = b.mark
		}
	}
	check := func(b block, upTo int32) {
		t.Helper()
		if got := blockSize(tls, b.at); got < b.size {
			t.Fatalf("a block for %d bytes has %d", b.size, got)
		}
		for i := range min(b.size, upTo) {
			if got := *at[byte](b.at + uintptr(i)); got != b.mark {
				t.Fatalf("byte %d of %d is %d, not %d", i, b.size, got, b.mark)
			}
		}
	}
	var live []block
	for n := range 4000 {
		i := random.IntN(len(live) + 1)
		switch {
		case i == len(live) || len(live) < 20:
			b := block{size: size(), mark: byte(n)}
			b.at = blockMalloc(tls, b.size)
			if rounded := blockRoundup(tls, b.size); rounded < b.size || blockSize(tls, b.at) > rounded {
				t.Fatalf("%d bytes are rounded to %d, and get %d", b.size, rounded, blockSize(tls, b.at))
			}
			fill(b)
			live = append(live, b)
		case n%3 == 0:
			b := block{size: size(), mark: live[i].mark}
			b.at = blockRealloc(tls, live[i].at, b.size)
			check(b, live[i].size)
			fill(b)
			live[i] = b
		default:
			check(live[i], live[i].size)
			blockFree(tls, live[i].at)
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
		}
	}
	for _, b := range live {
		check(b, b.size)
		blockFree(tls, b.at)
	}
	for log := largestBlock - 3; log <= largestBlock; log++ { // more of each than are kept
		var many []uintptr
		for range mostKept(log) + 2 {
			many = append(many, blockMalloc(tls, 1<<log-blockHeader))
		}
		for _, at := range many {
			blockFree(tls, at)
		}
	}
	kept.Lock()
	defer kept.Unlock()
	for log, blocks := range kept.blocks {
		if most := mostKept(log); len(blocks) > most || log == 0 && len(blocks) > 0 {
			t.Errorf("%d blocks of %d bytes are kept, more than %d", len(blocks), 1<<log, most)
		}
	}
}

// TestSwitch: the allocator is on unless the variable says off, and a typing error
// is refused.
func TestSwitch(t *testing.T) {
	for value, want := range map[string]bool{"": true, "on": true, "off": false} {
		if on, err := enabled(value); on != want || err != nil {
			t.Errorf("%q: %t, %v", value, on, err)
		}
	}
	if _, err := enabled("0"); err == nil || err.Error() != `EXEUNT_SQLITE_ALLOCATOR is "0": set it to on or off` {
		t.Errorf("got error %v", err)
	}
}

// TestInstall: SQLite works with and without the allocator, and uses it only if it
// is on. Each runs in a process of its own, because it is installed once.
func TestInstall(t *testing.T) {
	const child = "EXEUNT_TEST_PAGEALLOC_CHILD"
	if os.Getenv(child) == "" {
		for _, value := range []string{"on", "off"} {
			cmd := exec.Command(os.Args[0], "-test.run=^TestInstall$")
			cmd.Env = append(os.Environ(), child+"=1", Switch+"="+value)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", value, err, out)
			}
		}
		return
	}
	rows(t, openSQLite(t), 100)
	kept.Lock()
	defer kept.Unlock()
	blocks := 0
	for _, list := range kept.blocks {
		blocks += len(list)
	}
	if on := os.Getenv(Switch) == "on"; on != (blocks > 0) {
		t.Errorf("with %s=%s, %d blocks are kept", Switch, os.Getenv(Switch), blocks)
	}
}

// BenchmarkRows writes and removes rows with a trigger, a thousand of each in a
// transaction.
func BenchmarkRows(b *testing.B) {
	db := openSQLite(b)
	for b.Loop() {
		rows(b, db, 1000)
	}
}

func openSQLite(t testing.TB) *sql.DB {
	t.Helper()
	if err := Install(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "test.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)
	for _, s := range []string{
		`PRAGMA journal_mode = WAL`, `PRAGMA synchronous = OFF`,
		`CREATE TABLE objects (id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, body BLOB) STRICT`,
		`CREATE TABLE reviews (uid TEXT PRIMARY KEY, event TEXT NOT NULL) STRICT`,
		`CREATE TRIGGER objects_removed AFTER DELETE ON objects BEGIN
			INSERT INTO reviews (uid, event) VALUES (OLD.uid, 'removed') ON CONFLICT (uid) DO UPDATE SET event = excluded.event;
		END`,
	} {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%v\n%s", err, s)
		}
	}
	return db
}

func rows(t testing.TB, db *sql.DB, n int) {
	t.Helper()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	body := make([]byte, 1024)
	for i := range n {
		if _, err := tx.Exec(`INSERT INTO objects (id, uid, body) VALUES ($1, 'uid-' || $1, $2)`, i, body); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		if _, err := tx.Exec(`DELETE FROM objects WHERE id = $1`, i); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}
