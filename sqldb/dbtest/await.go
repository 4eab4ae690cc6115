package dbtest

import (
	"fmt"
	"testing"
	"time"
)

// Patience limits how long a test waits for what must happen. No test passes or fails by the
// time that something takes: the limit only ends a test that would hang.
const Patience = time.Minute

// Until polls until check returns nil, less and less often, because a check may be a query. What does not happen ends the test, with
// check's last error.
func Until(t testing.TB, what string, check func() error) {
	t.Helper()
	end, pause := time.Now().Add(Patience), 2*time.Millisecond
	for err := check(); err != nil; err = check() {
		if time.Now().After(end) {
			t.Fatalf("waited %s until %s: %v", Patience, what, err)
		}
		time.Sleep(pause)
		pause = min(pause+pause/4, 20*time.Millisecond)
	}
}

// Await is Until for a condition.
func Await(t testing.TB, what string, done func() bool) {
	t.Helper()
	Until(t, what, func() error {
		if done() {
			return nil
		}
		return fmt.Errorf("not yet")
	})
}
