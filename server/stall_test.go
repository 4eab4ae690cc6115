package server

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/exeunt/exeunt/internal/inflight"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// stalled returns a connection with the timeout, and the client's end of it.
func stalled(t *testing.T, timeout time.Duration) (server net.Conn, client net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = (stallListener{l, timeout, inflight.NewStrangers(0)}).Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return server, client
}

// more than two sockets buffer.
const tooMuch = 64 << 20

func TestStalledWriteEnds(t *testing.T) {
	server, _ := stalled(t, 200*time.Millisecond)
	if _, err := server.Write(make([]byte, tooMuch)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the write ended with %v", err)
	}
	start := time.Now()
	if err := server.SetWriteDeadline(time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Write([]byte("x")); err == nil || time.Since(start) > dbtest.Patience {
		t.Errorf("the write after it ended with %v", err)
	}
}

// TestDeadlineEndsARunningWrite: a deadline that is set during a write applies to it, although
// the write began with the stall timeout.
func TestDeadlineEndsARunningWrite(t *testing.T) {
	server, _ := stalled(t, time.Hour)
	ended := make(chan error, 1)
	go func() {
		_, err := server.Write(make([]byte, tooMuch))
		ended <- err
	}()
	for {
		if err := server.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the write ended with %v", err)
			}
			return
		case <-time.After(dbtest.Patience):
			t.Fatal("the write still runs")
		}
	}
}

// TestSlowReaderIsKept: the kernel sends a file to a client that reads all the time, but needs
// much longer than the timeout for the whole file.
func TestSlowReaderIsKept(t *testing.T) {
	t.Parallel()
	const timeout, size = 4 * time.Second, 16 << 20 // on a busy machine the client rests for a second
	server, client := stalled(t, timeout)
	name := filepath.Join(t.TempDir(), "blob")
	if err := os.WriteFile(name, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := server.(io.ReaderFrom).ReadFrom(&io.LimitedReader{R: file, N: size})
		ended <- errors.Join(err, server.Close())
	}()
	read, start := 0, time.Now()
	for buffer := make([]byte, 1<<20); ; {
		n, err := io.ReadFull(client, buffer)
		read += n
		if err != nil {
			break
		}
		time.Sleep(2 * timeout / 16) // simulates the slow client
	}
	if err := <-ended; err != nil || read != size || time.Since(start) < timeout {
		t.Errorf("%d bytes in %v: %v", read, time.Since(start), err)
	}
}
