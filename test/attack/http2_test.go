package attack_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// openWindow lets the server send as much as the socket takes.
const openWindow = 1 << 30

// stream is one HTTP/2 request on a connection of its own.
type stream struct {
	conn   net.Conn
	framer *http2.Framer
}

// stream sends a GET. window is how many bytes of the answer the client allows;
// nothing is read.
func (a *target) stream(t testing.TB, path string, window uint32) *stream {
	t.Helper()
	conn := a.dial(t, "h2")
	var block, out bytes.Buffer
	headers := hpack.NewEncoder(&block)
	for _, field := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "localhost"}, {":path", path}, {"accept", "application/json"}} {
		if err := headers.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}); err != nil {
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
		err = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	send(t, conn, out.String())
	return &stream{conn: conn, framer: http2.NewFramer(conn, conn)}
}

// reset reads the connection's frames, but never opens the stream's window. It
// says nil when the server resets the stream.
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
