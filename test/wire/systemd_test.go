package wire_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/exeunt/exeunt/test/harness"
)

// TestServiceManager: the program tells systemd that it is ready, that it lives, and that
// it stops; settings of the environment are in force, and the administrator sees them. It
// serves the sockets that systemd opened, in which a connection waits while it restarts, and
// a reload applies what it can.
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
	api, apiAddress := openSocket(t, "api")
	images, imagesAddress := openSocket(t, "registry")
	file := filepath.Join(dir, "exeunt.yaml")
	writeFile(t, file, "stall-timeout: 31s\n")
	s := harness.StartWithSockets(t, harness.SQLite, []harness.Socket{api, images}, "--config", file)
	await("READY=1")
	await("WATCHDOG=1")
	answer := settings(t, s)
	if !strings.Contains(answer, `{"name":"max-cascade","value":"77","source":"environment EXEUNT_MAX_CASCADE"}`) ||
		!strings.Contains(answer, `"source":"flag"`) || !strings.Contains(answer, `{"name":"event-ttl","value":"1h0m0s","source":"default"}`) {
		t.Errorf("/debug/config is %s", answer)
	}
	if s.Config().Host != "https://"+apiAddress || s.Registry() != imagesAddress {
		t.Errorf("the API is at %s and the registry at %s, want %s and %s", s.Config().Host, s.Registry(), apiAddress, imagesAddress)
	}
	checkReload(t, s, file)
	s.Stop()
	await("STOPPING=1")
	early, err := net.Dial("tcp", apiAddress)
	if err != nil {
		t.Fatalf("no connection while the server is stopped: %v", err)
	}
	defer early.Close()
	s.Start()
	config, err := rest.TLSConfigFor(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	config.ServerName = "127.0.0.1"
	client := http.Client{Timeout: harness.Patience, Transport: &http.Transport{DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
		return tls.Client(early, config), nil
	}}}
	waited, err := client.Get("https://" + apiAddress + "/readyz")
	if err != nil {
		t.Fatalf("a connection that waited for the server: %v", err)
	}
	if _ = waited.Body.Close(); waited.StatusCode != http.StatusOK {
		t.Errorf("a connection that waited for the server gets %s", waited.Status)
	}
}

// checkReload: SIGHUP applies one change, lets the other wait for a restart, and refuses a
// file with a mistake as a whole.
func checkReload(t *testing.T, s *harness.Server, file string) {
	t.Helper()
	hangUp := func(text string, done func() error) {
		t.Helper()
		writeFile(t, file, text)
		if err := syscall.Kill(s.Pid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		harness.Until(t, "the reload", done)
	}
	has := func(text string, parts ...string) error {
		for _, part := range parts {
			if !strings.Contains(text, part) {
				return fmt.Errorf("no %s in %s", part, text)
			}
		}
		return nil
	}
	hangUp("stall-timeout: 32s\nlog-requests: true\n", func() error {
		return has(settings(t, s), `{"name":"stall-timeout","value":"31s","source":"`+file+`:1","pending":"32s"}`, `{"name":"log-requests","value":"true","source":"`+file+`:2"}`)
	})
	harness.Until(t, "the log of requests", func() error {
		settings(t, s)
		return has(s.Said(), "msg=request method=GET path=/debug/config", `msg="a changed setting needs a restart" name=stall-timeout value=31s new=32s`)
	})
	before := settings(t, s)
	hangUp("log-requests: false\nlissten: x\n", func() error {
		return has(s.Said(), "the new configuration has an error", `:2: unknown key \"lissten\"`)
	})
	if after := settings(t, s); after != before {
		t.Errorf("a file with a mistake changed the settings from %s to %s", before, after)
	}
	writeFile(t, file, "stall-timeout: 32s\n")
}

// settings is the answer of /debug/config.
func settings(t *testing.T, s *harness.Server) string {
	t.Helper()
	return string(s.HTTP().Do(t, harness.Request{Method: http.MethodGet, Path: "/debug/config"}).Body)
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// openSocket opens a listening socket, as systemd does, and returns its address.
func openSocket(t *testing.T, name string) (harness.Socket, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return harness.Socket{Name: name, File: file}, l.Addr().String()
}
