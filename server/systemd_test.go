package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestServiceManager: systemd hears of readiness, of life as long as the server answers
// itself, and of the end.
func TestServiceManager(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "20000")
	next := func() string {
		t.Helper()
		if err := socket.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 100)
		n, err := socket.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		return string(buffer[:n])
	}
	var stuck atomic.Bool
	var asked atomic.Int64
	m := serviceManager{log: slog.New(slog.DiscardHandler), alive: func(context.Context) error {
		asked.Add(1)
		if stuck.Load() {
			return errors.New("no answer")
		}
		return nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- m.run(ctx) }()
	for _, want := range []string{"READY=1", "WATCHDOG=1", "WATCHDOG=1"} {
		if got := next(); got != want {
			t.Fatalf("systemd got %q, want %q", got, want)
		}
	}
	// A server that is stuck sends nothing: of three further rounds only the one that had
	// begun may report.
	stuck.Store(true)
	before := asked.Load()
	dbtest.Await(t, "three rounds", func() bool { return asked.Load() >= before+3 })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	beats := 0
	for got := next(); got != "STOPPING=1"; got = next() {
		beats++
	}
	if beats > 2 {
		t.Errorf("a server that does not answer sent %d signs of life", beats)
	}
}
