// Package harness runs the real server and the real kubectl for end-to-end
// tests.
//
// Start gives a server process on a fresh database of either engine; it is
// stopped, and its database dropped, when the test ends. Nothing here sleeps
// for a fixed time: Until polls, with a deadline, for what the test waits for.
package harness

import (
	"fmt"
	"hash/crc32"
	"testing"
	"time"
)

// The two databases the server runs on.
const (
	SQLite   = "sqlite"
	Postgres = "postgres"
)

// Patience bounds every wait for something that should happen at once. It is
// generous because test machines are slow; a healthy server never needs it.
const Patience = 90 * time.Second

// Engines are those that a test runs on: with -short one, which its name decides, because the server's own tests, of
// what reaches SQL, run on both. It is PostgreSQL for one test in four, as in dbtest.EnginesOf.
func Engines(name string) []string {
	both := []string{SQLite, Postgres}
	if !testing.Short() {
		return both
	}
	i := crc32.ChecksumIEEE([]byte(name)) % 4 / 3
	return both[i : i+1]
}

// Each runs a test on each of its Engines, with a fresh server.
func Each(t *testing.T, test func(t *testing.T, s *Server)) {
	t.Helper()
	each(t, Engines(t.Name()), test)
}

// Both is Each for a test whose subject is the database: always on both engines.
func Both(t *testing.T, test func(t *testing.T, s *Server)) {
	t.Helper()
	each(t, []string{SQLite, Postgres}, test)
}

func each(t *testing.T, engines []string, test func(t *testing.T, s *Server)) {
	t.Helper()
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel() // the engines wait more than they work
			test(t, Start(t, engine))
		})
	}
}

// Until polls until the condition returns nil; after Patience it fails the
// test with the condition's last error.
func Until(t testing.TB, what string, condition func() error) {
	t.Helper()
	if err := Poll(condition); err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

// Within is Until with a deadline that is itself under test.
func Within(t testing.TB, limit time.Duration, what string, condition func() error) {
	t.Helper()
	if err := poll(limit, condition); err != nil {
		t.Fatalf("%s did not happen within %v: %v", what, limit, err)
	}
}

// Poll is Until without a test: it returns the last error.
func Poll(condition func() error) error {
	return poll(Patience, condition)
}

// poll asks seldom for a condition that runs a command: most of the processors are for those that it waits for.
func poll(limit time.Duration, condition func() error) error {
	deadline := time.Now().Add(limit)
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		asked := time.Now()
		err := condition()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("gave up after %v: %w", limit, err)
		}
		time.Sleep(max(pause, min(2*time.Since(asked), time.Second)))
	}
}
