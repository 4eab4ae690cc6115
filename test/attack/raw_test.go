package attack_test

import (
	"testing"
	"time"

	"github.com/exeunt/exeunt/test/harness"
)

// TestDial checks the tools of the attackers: both protocols work, and awaitClose notices
// a connection that the server closed. The server allows 100 streams on a connection.
func TestDial(t *testing.T) {
	a := startTarget(t, harness.SQLite)
	s := a.stream(t, "/readyz", openWindow)
	if status, err := s.readStatus(); err != nil || status != "200" || s.allowed != 100 {
		t.Errorf("answered %s, %v; the server allows %d streams, want 100", status, err, s.allowed)
	}
	conn := a.dial(t, "http/1.1")
	send(t, conn, "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	if err := awaitClose(conn, harness.Patience); err != nil {
		t.Error(err)
	}
	still := a.dial(t, "http/1.1")
	if awaitClose(still, 100*time.Millisecond) == nil {
		t.Error("an open connection counts as closed")
	}
}
