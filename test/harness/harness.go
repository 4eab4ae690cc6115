// Package harness runs the real server and the real kubectl for end-to-end
// tests.
//
// Start gives a server process on a fresh database of either engine; it is
// stopped, and its database dropped, when the test ends. Nothing here sleeps
// for a fixed time: Until polls, with a deadline, for what the test waits for.
package harness

import (
	"fmt"
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

// Each runs a test once per engine, on a fresh server each.
func Each(t *testing.T, test func(t *testing.T, s *Server)) {
	t.Helper()
	for _, engine := range []string{SQLite, Postgres} {
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

func poll(limit time.Duration, condition func() error) error {
	deadline := time.Now().Add(limit)
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		err := condition()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("gave up after %v: %w", limit, err)
		}
		time.Sleep(pause)
	}
}
