package attack_test

import (
	"testing"
	"time"

	"github.com/exeunt/exeunt/test/harness"
)

// TestDial holds the attackers' own tools: both protocols are spoken, and a
// connection that the server closes is seen as ended.
func TestDial(t *testing.T) {
	a := begin(t, harness.SQLite)
	a.dial(t, "h2")
	conn := a.dial(t, "http/1.1")
	send(t, conn, "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	if err := ended(conn, harness.Patience); err != nil {
		t.Error(err)
	}
	still := a.dial(t, "http/1.1")
	if ended(still, 100*time.Millisecond) == nil {
		t.Error("an open connection counts as ended")
	}
}
