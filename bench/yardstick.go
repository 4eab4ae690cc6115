package bench

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// yardstick measures the minimal work of a registry for a large layer: on its
// disk, with the same bytes, by the same reader, in the same minute. A push is
// compared with hashing, writing and syncing, a pull with a file that the
// kernel sends.
type yardstick struct {
	dir         string // on the registry's disk; empty means no comparison
	write, send tally
}

// The names of the yardsticks.
const (
	writeYardstick = "sha256, write and sync"
	sendYardstick  = "sendfile to the reader"
)

// layer hashes, writes and syncs the bytes, one after the other, and leaves a
// file for the pulls.
func (y *yardstick) layer(layer largeLayer) error {
	if y.dir == "" {
		return nil
	}
	begin := time.Now()
	if _, err := layer.digest(); err != nil {
		return err
	}
	err := writeSynced(y.file(), layer.open())
	y.write.count(time.Since(begin), layer.size, err)
	return err
}

func (y *yardstick) file() string { return y.dir + "/exeunt-bench-yardstick" }

func writeSynced(name string, from io.Reader) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = copyAll(f, from)
	return errors.Join(err, f.Sync(), f.Close())
}

// sendfile sends the file over a loopback connection.
func (y *yardstick) sendfile() error {
	if y.dir == "" {
		return nil
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() { sent <- sendFile(listener, y.file()) }()
	begin := time.Now()
	got, err := receive(listener.Addr().String())
	y.send.count(time.Since(begin), got, err)
	return errors.Join(err, listener.Close(), <-sent)
}

// sendFile serves one connection. Copying from a file to a TCP connection uses
// sendfile where the kernel has it.
func sendFile(listener net.Listener, name string) error {
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	f, err := os.Open(name)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	_, err = io.Copy(conn, f)
	return errors.Join(err, f.Close(), conn.Close())
}

func receive(address string) (int64, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return 0, err
	}
	n, err := copyAll(io.Discard, conn)
	return n, errors.Join(err, conn.Close())
}

// close removes the file.
func (y *yardstick) close() error {
	if y.dir == "" {
		return nil
	}
	if err := os.Remove(y.file()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("bench: %w", err)
	}
	return nil
}

// measures returns the lines of the yardsticks.
func (y *yardstick) measures() []Measure {
	var list []Measure
	for _, step := range []struct {
		name string
		t    *tally
	}{{writeYardstick, &y.write}, {sendYardstick, &y.send}} {
		if step.t.ops > 0 {
			m, _ := meter{}.stopAfter(step.name, step.t, step.t.latency.sum) // reads no process, so it cannot fail
			list = append(list, m)
		}
	}
	return list
}

// compare adds the ratio of a measure to its yardstick, if it has one.
func (y *yardstick) compare(m *Measure) {
	name, t := writeYardstick, &y.write
	switch m.Name {
	case pushLarge:
	case pullLarge:
		name, t = sendYardstick, &y.send
	default:
		return
	}
	if t.ops > 0 && m.Operations > 0 {
		m.Yardstick = &Ratio{Name: name, Times: float64(m.Latency.P50) / float64(t.latency.summary().P50)}
	}
}

var copyBuffers = sync.Pool{New: func() any { return new([256 << 10]byte) }}

// copyAll is io.Copy with a large buffer: its cost is part of every figure, so
// it must be small and constant.
func copyAll(to io.Writer, from io.Reader) (int64, error) {
	buffer := copyBuffers.Get().(*[256 << 10]byte)
	defer copyBuffers.Put(buffer)
	return io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, buffer[:])
}

// digestOf hashes a reader to its end.
func digestOf(from io.Reader) ([]byte, error) {
	h := sha256.New()
	_, err := copyAll(h, from)
	return h.Sum(nil), err
}
