// Package dbtest gives tests fresh databases, on both engines.
//
// A package that uses it has a TestMain that calls [Main]. PostgreSQL is the
// server that EXEUNT_TEST_POSTGRES names (a URL whose user may create
// databases); without it, the package starts a private server, once per test
// binary. A machine without PostgreSQL fails the tests: it does not skip them.
package dbtest

import (
	"context"
	"fmt"
	"hash/crc32"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/exeunt/exeunt/sqldb"
)

// environment names a PostgreSQL server to use.
const environment = "EXEUNT_TEST_POSTGRES"

var (
	started sync.Once
	running *server // set once, by started
	failure error   // set once, by started
	inMain  atomic.Bool
	both    atomic.Bool // set by MainBoth
	counter atomic.Int64
)

// Main runs the tests and then stops the server that they started.
func Main(m *testing.M) {
	inMain.Store(true)
	code := m.Run()
	if err := exits.run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	removeTemplates()
	if running != nil {
		running.stop()
	}
	os.Exit(code)
}

// MainBoth is Main for a package whose tests run on both engines with -short too: its subject is SQL.
func MainBoth(m *testing.M) {
	both.Store(true)
	Main(m)
}

// Engines lists the engines.
func Engines() []sqldb.Engine { return []sqldb.Engine{sqldb.SQLite, sqldb.Postgres} }

// EnginesOf lists those that a test runs on: with -short one, which its name decides, unless SQL is the subject of its package. It is
// PostgreSQL for one test in four, because a test costs there twice to four times the processor.
func EnginesOf(t *testing.T) []sqldb.Engine {
	if !testing.Short() || both.Load() {
		return Engines()
	}
	i := crc32.ChecksumIEEE([]byte(t.Name())) % 4 / 3
	return Engines()[i : i+1]
}

// Each runs a test on a fresh database of each of its engines.
func Each(t *testing.T, test func(t *testing.T, db *sqldb.DB)) {
	t.Helper()
	each(t, EnginesOf(t), test)
}

// Both is Each for a test whose subject is SQL: on both engines with -short too.
func Both(t *testing.T, test func(t *testing.T, db *sqldb.DB)) {
	t.Helper()
	each(t, Engines(), test)
}

func each(t *testing.T, engines []sqldb.Engine, test func(t *testing.T, db *sqldb.DB)) {
	t.Helper()
	for _, engine := range engines {
		t.Run(string(engine), func(t *testing.T) { test(t, OpenDB(t, engine)) })
	}
}

// EachParallel is Each with the engines at the same time, and beside other tests
// that are parallel. It returns before they have run, so nothing may follow it in the
// test.
func EachParallel(t *testing.T, test func(t *testing.T, db *sqldb.DB)) {
	t.Helper()
	for _, engine := range EnginesOf(t) {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			test(t, OpenDB(t, engine))
		})
	}
}

// OpenDB opens a fresh, migrated database for the time of a test: a copy of a
// template that is migrated once.
func OpenDB(t testing.TB, engine sqldb.Engine) *sqldb.DB {
	t.Helper()
	return Connect(t, Migrated(t, engine))
}

// OpenSynced opens a PostgreSQL database of its own whose commits wait for the disk, as those of operators do; the server
// of tests does not wait.
func OpenSynced(t testing.TB) *sqldb.DB {
	t.Helper()
	at, err := url.Parse(Open(t, sqldb.Postgres))
	if err != nil {
		t.Fatal(err)
	}
	query := at.Query()
	query.Set("synchronous_commit", "on")
	at.RawQuery = query.Encode()
	return Connect(t, at.String())
}

// Connect opens a database for the time of a test.
func Connect(t testing.TB, database string) *sqldb.DB {
	t.Helper()
	db, err := sqldb.Open(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close database: %v", err)
		}
	})
	return db
}

// Open makes an empty database for the time of a test and returns the string
// that [sqldb.Open] takes.
func Open(t testing.TB, engine sqldb.Engine) (database string) {
	t.Helper()
	switch engine {
	case sqldb.SQLite:
		return filepath.Join(t.TempDir(), "exeunt.db")
	case sqldb.Postgres:
		return createDatabase(t, "template1")
	}
	t.Fatalf("no such engine: %q", engine)
	return ""
}

// createDatabase makes a copy of a database on the server and drops it after
// the test.
func createDatabase(t testing.TB, template string) string {
	t.Helper()
	admin, name := serverURL(t), newName()
	if err := creates.execute(t.Context(), admin, "CREATE DATABASE "+name+" TEMPLATE "+template+" STRATEGY FILE_COPY"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		drop := func() error { return drops.execute(context.Background(), admin, dropDatabase(name)) }
		if inMain.Load() {
			exits.begin(drop) // the next test need not wait for it
		} else if err := drop(); err != nil {
			t.Error(err)
		}
	})
	database, err := inServer(admin, name)
	if err != nil {
		t.Fatal(err)
	}
	return database
}

func newName() string {
	return fmt.Sprintf("exeunt_test_%d_%d_%d", os.Getpid(), time.Now().UnixNano(), counter.Add(1))
}

func dropDatabase(name string) string { return "DROP DATABASE IF EXISTS " + name + " WITH (FORCE)" }

// inServer names a database of a server.
func inServer(admin, name string) (string, error) {
	u, err := url.Parse(admin)
	if err != nil {
		return "", fmt.Errorf("%s is not a URL: %w", environment, err)
	}
	u.Path = "/" + name
	return u.String(), nil
}

// serverURL is the server to use. The first call starts the private server.
func serverURL(t testing.TB) string {
	t.Helper()
	if given := os.Getenv(environment); given != "" {
		return given
	}
	if !inMain.Load() {
		t.Fatal("this package needs a TestMain that calls dbtest.Main")
	}
	started.Do(func() { running, failure = start() })
	if failure != nil {
		t.Fatalf("PostgreSQL for the tests: %v", failure)
	}
	return running.url
}

// session is a connection to the server for one statement after the other: each connection is a process of PostgreSQL, which
// costs more than most statements.
type session struct {
	mu   sync.Mutex
	conn *pgx.Conn // nil before the first statement, and after one that failed; guarded by mu
}

// creates and drops are apart, because a drop runs beside the next test.
var creates, drops session

func (s *session) execute(ctx context.Context, server, statement string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		conn, err := pgx.Connect(ctx, server)
		if err != nil {
			return fmt.Errorf("connect to PostgreSQL for the tests: %w", err)
		}
		s.conn = conn
	}
	if _, err := s.conn.Exec(ctx, statement); err != nil {
		_ = s.conn.Close(context.Background())
		s.conn = nil
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}
