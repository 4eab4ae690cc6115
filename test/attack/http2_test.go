package attack_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/exeunt/exeunt/test/harness"
)

// openWindow lets the server send as much as the socket takes.
const openWindow = 1 << 30

// stream is one HTTP/2 request on a connection of its own.
type stream struct {
	conn    net.Conn
	framer  *http2.Framer
	allowed uint32 // how many streams the server allows on the connection; set by readStatus
}

// stream sends a GET for JSON and reads nothing. window is how many bytes of the answer
// the client allows.
func (a *target) stream(t testing.TB, path string, window uint32) *stream {
	t.Helper()
	return a.request(t, a.dial(t, "h2"), window, "", ":method", "GET", ":path", path, "accept", "application/json")
}

// request sends any request; fields are the names and values of the headers, alternating.
func (a *target) request(t testing.TB, conn net.Conn, window uint32, body string, fields ...string) *stream {
	t.Helper()
	var block, out bytes.Buffer
	headers := hpack.NewEncoder(&block)
	fields = append([]string{":scheme", "https", ":authority", "localhost"}, fields...)
	for i := 0; i < len(fields); i += 2 {
		if err := headers.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			t.Fatal(err)
		}
	}
	out.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&out, nil)
	err := framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
	if err == nil && window > 0 {
		err = framer.WriteWindowUpdate(0, openWindow)
	}
	if err == nil {
		err = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: body == "", EndHeaders: true})
	}
	if err == nil && body != "" {
		err = framer.WriteData(1, true, []byte(body))
	}
	if err != nil {
		t.Fatal(err)
	}
	send(t, conn, out.String())
	return &stream{conn: conn, framer: http2.NewFramer(conn, conn)}
}

// readStatus reads frames until the answer begins, and returns its status. The rest of the
// answer waits until the client opens the window.
func (s *stream) readStatus() (status string, err error) {
	if err := s.conn.SetReadDeadline(time.Now().Add(harness.Patience)); err != nil {
		return "", err
	}
	decoder := hpack.NewDecoder(4<<10, func(f hpack.HeaderField) {
		if f.Name == ":status" {
			status = f.Value
		}
	})
	for {
		frame, err := s.framer.ReadFrame()
		if err != nil {
			return "", err
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				s.allowed, _ = f.Value(http2.SettingMaxConcurrentStreams)
				err = s.framer.WriteSettingsAck()
			}
		case *http2.HeadersFrame:
			_, err := decoder.Write(f.HeaderBlockFragment())
			if err == nil && f.StreamEnded() {
				err = errors.New("the answer is empty and cannot wait for its client")
			}
			return status, err
		case *http2.RSTStreamFrame:
			return "", fmt.Errorf("the stream was reset: %v", f.ErrCode)
		}
		if err != nil {
			return "", err
		}
	}
}

// reset reads the connection's frames but never opens the stream's window. The channel
// receives nil when the server resets the stream.
func (s *stream) reset(t testing.TB) <-chan error {
	t.Helper()
	result := make(chan error, 1)
	go func() { result <- s.awaitReset() }() // ends with the connection, which ends with the test
	return result
}

func (s *stream) awaitReset() error {
	for {
		frame, err := s.framer.ReadFrame()
		if err != nil {
			return fmt.Errorf("the connection ended: %w", err)
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = s.framer.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				err = s.framer.WritePing(true, f.Data)
			}
		case *http2.RSTStreamFrame:
			return nil
		case *http2.DataFrame:
			if len(f.Data()) > 0 {
				return errors.New("the server sent data past the window")
			}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
}
