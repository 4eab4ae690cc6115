package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// late is longer than any answer may take, and much shorter than a body that never ends.
const late = dbtest.Patience

// reader answers 408 for a body that was too slow, 401 without reading for the path /refuse,
// and otherwise the number of bytes received.
func reader(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path == "/refuse" {
		http.Error(w, strings.Repeat("no ", 2000), http.StatusUnauthorized)
		return
	}
	n, err := io.Copy(io.Discard, req.Body)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.WriteHeader(http.StatusRequestTimeout)
	case err != nil:
		w.WriteHeader(http.StatusBadRequest)
	case req.Context().Err() != nil:
		w.WriteHeader(http.StatusInternalServerError)
	default:
		fmt.Fprint(w, n)
	}
}

func startReader(t *testing.T, limits bodyLimits) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(limitBodies(limits, http.HandlerFunc(reader)))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// send begins a request over HTTP/1 whose body the test writes.
func send(t *testing.T, s *httptest.Server, path string, length int, body string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	config := s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.ServerName, config.NextProtos = "example.com", []string{"http/1.1"}
	conn = tls.Client(conn, config)
	if err := conn.SetDeadline(time.Now().Add(late)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", path, length, body); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

func wantStatus(t *testing.T, r *bufio.Reader, code int) *http.Response {
	t.Helper()
	answer, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	if answer.StatusCode != code {
		t.Fatalf("answered %d, want %d", answer.StatusCode, code)
	}
	return answer
}

// wantClosed checks that the server closes the connection.
func wantClosed(t *testing.T, r *bufio.Reader) {
	t.Helper()
	if _, err := r.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the connection is open: %v", err)
	}
}

// TestRefusedBodyIsNotWaitedFor: an answer that does not need the body is sent before the body
// arrives, and the connection is closed.
func TestRefusedBodyIsNotWaitedFor(t *testing.T) {
	s := startReader(t, bodyLimits{total: time.Hour})
	_, r := send(t, s, "/refuse", 100, "x")
	wantStatus(t, r, http.StatusUnauthorized)
	wantClosed(t, r)
}

// TestRefusedBodyThatCameKeepsTheConnection: a refused client that has sent its whole body
// keeps its connection.
func TestRefusedBodyThatCameKeepsTheConnection(t *testing.T) {
	s := startReader(t, bodyLimits{total: time.Hour})
	conn, r := send(t, s, "/refuse", 3, "abc")
	wantStatus(t, r, http.StatusUnauthorized)
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, r, http.StatusOK)
}

// TestRequestIsNotChanged: the request that net/http keeps has its own Body. net/http
// recognizes by its type that a client waits for "100 Continue", and answers at once.
func TestRequestIsNotChanged(t *testing.T) {
	req := httptest.NewRequest("POST", "/refuse", strings.NewReader("body"))
	body := req.Body
	limitBodies(bodyLimits{total: time.Hour}, http.HandlerFunc(reader)).ServeHTTP(httptest.NewRecorder(), req)
	if req.Body != body {
		t.Errorf("the request's Body is now a %T", req.Body)
	}
}

func TestSlowBodyEnds(t *testing.T) {
	for name, limits := range map[string]bodyLimits{
		"by its total": {total: 300 * time.Millisecond},
		"by a stall":   {total: time.Hour, stall: 300 * time.Millisecond},
		"by its rate":  {total: 300 * time.Millisecond, stall: time.Hour, rate: 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			s := startReader(t, limits)
			_, r := send(t, s, "/", 100, "x")
			wantStatus(t, r, http.StatusRequestTimeout)
			wantClosed(t, r)
		})
	}
}

// TestSlowBodyEndsOverHTTP2: only the slow stream ends; the connection stays.
func TestSlowBodyEndsOverHTTP2(t *testing.T) {
	s := startReader(t, bodyLimits{total: 300 * time.Millisecond})
	ctx, cancel := context.WithTimeout(context.Background(), late)
	defer cancel()
	body, end := io.Pipe()
	defer end.Close()
	req, err := http.NewRequestWithContext(ctx, "POST", s.URL, body)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.ProtoMajor != 2 || answer.StatusCode != http.StatusRequestTimeout {
		t.Errorf("answered %s %s", answer.Proto, answer.Status)
	}
	again, err := s.Client().Post(s.URL, "text/plain", strings.NewReader("abc"))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Body.Close()
	if again.StatusCode != http.StatusOK {
		t.Errorf("then answered %s", again.Status)
	}
}

// TestBodyWithProgressMayTakeLong: with a rate, a body that makes progress may exceed total,
// and the deadline does not end the request after it.
func TestBodyWithProgressMayTakeLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, conn := net.Pipe()
		s := &http.Server{Handler: limitBodies(bodyLimits{total: time.Minute, stall: 2 * time.Second, rate: 1}, http.HandlerFunc(reader))}
		listener := &pipeListener{conns: make(chan net.Conn, 1)}
		listener.conns <- conn
		var served sync.WaitGroup
		served.Go(func() { _ = s.Serve(listener) })
		defer served.Wait()
		defer s.Close()
		if err := client.SetDeadline(time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 600\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		for range 600 {
			time.Sleep(500 * time.Millisecond)
			if _, err := io.WriteString(client, "x"); err != nil {
				t.Fatal(err)
			}
		}
		wantStatus(t, bufio.NewReader(client), http.StatusOK)
	})
}

// pipeListener accepts connections without a network, for synctest.
type pipeListener struct{ conns chan net.Conn }

func (l *pipeListener) Accept() (net.Conn, error) {
	if conn, open := <-l.conns; open {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (l *pipeListener) Close() error   { close(l.conns); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }
