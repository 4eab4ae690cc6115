package store

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// killDatabase names the database of the process that TestKillDuringMoves kills.
const killDatabase = "EXEUNT_TEST_KILL_DATABASE"

// TestKillDuringMoves: a process that writes, and whose compaction moves versions to the history all the time, is killed at
// random moments (SIGKILL) and started again. Then each revision is the version of one object exactly once, and each version
// whose write was acknowledged is there with its content.
func TestKillDuringMoves(t *testing.T) {
	if database := os.Getenv(killDatabase); database != "" {
		writeUntilKilled(t, database)
		return
	}
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine), func(t *testing.T) {
			database := dbtest.Migrated(t, engine)
			acknowledged := map[string]string{} // by "object@revision"
			for range fewer(2, 5) {
				killWriter(t, database, 100+rand.IntN(200), acknowledged)
			}
			db := dbtest.Connect(t, database)
			s := run(t, Options{DB: db, CompactEvery: time.Hour, History: HistoryOptions{For: time.Hour}}).Store
			checkKilled(t, s, db, acknowledged)
			if err := s.compact(t.Context(), s.Revision()); err != nil {
				t.Fatal(err)
			}
			checkKilled(t, s, db, acknowledged)
		})
	}
}

const killObjects = 4

func killKey(i int) object.Key {
	return object.Key{Kind: things, Namespace: "ns", Name: fmt.Sprint("web-", i)}
}

// writeUntilKilled writes, and prints what was acknowledged.
func writeUntilKilled(t *testing.T, database string) {
	db, err := sqldb.Open(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), Options{
		DB: db, Logger: slog.New(slog.DiscardHandler), KeepRevisions: 3, CompactEvery: time.Millisecond, History: HistoryOptions{For: time.Hour},
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Run(context.Background()) }()
	if _, err := s.Get(t.Context(), object.Key{Kind: object.Namespaces, Name: "ns"}); object.Is(err, object.NotFound) {
		createNamespace(t, s, "ns")
	}
	for i := 0; ; i++ {
		key := killKey(i % killObjects)
		o, err := s.Get(t.Context(), key)
		switch {
		case object.Is(err, object.NotFound):
			r := newRequest(key.Namespace, key.Name)
			o, err = s.Create(t.Context(), r)
		case err == nil:
			o = change(t, s, o, fmt.Sprint("value-", i, "-", o.Revision))
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("wrote %s@%d %s\n", key.Name, o.Revision, o.Body)
	}
}

// killWriter starts the writer, and kills it after some acknowledged writes.
func killWriter(t *testing.T, database string, writes int, acknowledged map[string]string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKillDuringMoves$")
	cmd.Env = append(os.Environ(), killDatabase+"="+database)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines, seen := bufio.NewScanner(out), 0
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), "wrote ")
		version, body, complete := strings.Cut(rest, " ")
		if !ok || !complete || !strings.HasSuffix(body, "}") {
			continue
		}
		acknowledged[version] = body
		if seen++; seen == writes {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); seen < writes || err == nil {
		t.Fatalf("the writer ended by itself after %d writes: %v", seen, err)
	}
}

func checkKilled(t *testing.T, s *Store, db *sqldb.DB, acknowledged map[string]string) {
	t.Helper()
	owner := map[int64]string{}
	keys := []object.Key{{Kind: object.Namespaces, Name: "ns"}}
	for i := range killObjects {
		keys = append(keys, killKey(i))
	}
	for _, key := range keys {
		err := s.Versions(t.Context(), key, math.MaxInt64, func(_ string, v Version) bool {
			if other, twice := owner[v.Revision]; twice {
				t.Errorf("version %d is one of %s and of %s", v.Revision, other, key)
			}
			owner[v.Revision] = key.Name
			version := fmt.Sprintf("%s@%d", key.Name, v.Revision)
			if want, known := acknowledged[version]; known && want != string(v.Body) {
				t.Errorf("%s is %s, and %s was acknowledged", version, v.Body, want)
			}
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for revision := int64(2); revision <= s.Revision(); revision++ {
		if owner[revision] == "" {
			t.Errorf("version %d is lost", revision)
		}
	}
	for version := range acknowledged {
		name, number, _ := strings.Cut(version, "@")
		var revision int64
		if _, err := fmt.Sscan(number, &revision); err != nil || owner[revision] != name {
			t.Errorf("%s was acknowledged, and version %d is one of %q (%v)", version, revision, owner[revision], err)
		}
	}
	var moved, compacted int64
	if _, err := db.Row(t.Context(), `SELECT moved, compacted FROM revision`, nil, &moved, &compacted); err != nil || moved != compacted || moved == 0 {
		t.Errorf("moved to %d, compacted to %d: %v", moved, compacted, err)
	}
}
