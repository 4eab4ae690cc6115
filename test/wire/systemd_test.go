package wire_test

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/test/harness"
)

// TestServiceManager: the program tells systemd that it is ready, that it lives, and that
// it stops; settings of the environment are in force, and the administrator sees them.
func TestServiceManager(t *testing.T) {
	dir, err := os.MkdirTemp("", "notify") // the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", filepath.Join(dir, "s"))
	t.Setenv("WATCHDOG_USEC", "400000")
	t.Setenv("EXEUNT_MAX_CASCADE", "77")
	await := func(want string) {
		t.Helper()
		buffer := make([]byte, 200)
		for end := time.Now().Add(harness.Patience); ; {
			if err := socket.SetReadDeadline(end); err != nil {
				t.Fatal(err)
			}
			n, err := socket.Read(buffer)
			if err != nil {
				t.Fatalf("systemd got no %s: %v", want, err)
			}
			if string(buffer[:n]) == want {
				return
			}
		}
	}
	s := harness.Start(t, harness.SQLite)
	await("READY=1")
	await("WATCHDOG=1")
	answer := string(s.HTTP().Do(t, harness.Request{Method: http.MethodGet, Path: "/debug/config"}).Body)
	if !strings.Contains(answer, `{"name":"max-cascade","value":"77","source":"environment EXEUNT_MAX_CASCADE"}`) ||
		!strings.Contains(answer, `"source":"flag"`) || !strings.Contains(answer, `{"name":"event-ttl","value":"1h0m0s","source":"default"}`) {
		t.Errorf("/debug/config is %s", answer)
	}
	s.Stop()
	await("STOPPING=1")
}
