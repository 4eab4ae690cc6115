package inflight

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// client is a ResponseWriter whose writes wait for read, or for a deadline in the past.
type client struct {
	http.ResponseWriter
	read   chan struct{}
	once   sync.Once
	cutOff chan struct{}
}

func newClient() *client {
	return &client{ResponseWriter: httptest.NewRecorder(), read: make(chan struct{}), cutOff: make(chan struct{})}
}

var errCutOff = errors.New("cut off")

func (c *client) Write(p []byte) (int, error) {
	select {
	case <-c.read:
		return len(p), nil
	case <-c.cutOff:
		return 0, errCutOff
	}
}

func (c *client) Read([]byte) (int, error) {
	select {
	case <-c.read:
		return 0, io.EOF
	case <-c.cutOff:
		return 0, errCutOff
	}
}

func (c *client) Close() error { return nil }

func (c *client) SetWriteDeadline(time.Time) error {
	c.once.Do(func() { close(c.cutOff) })
	return nil
}

func (c *client) SetReadDeadline(t time.Time) error { return c.SetWriteDeadline(t) }

// begin takes a slot, which must be free.
func begin(t *testing.T, l *Limit, w http.ResponseWriter) *Request {
	t.Helper()
	r, ok := l.Begin(w, httptest.NewRequest("GET", "/", nil).WithContext(t.Context()))
	if !ok {
		t.Fatal("no slot is free")
	}
	return r
}

// waits says how many requests wait for their clients, when they are n.
func waits(t *testing.T, l *Limit, n int) {
	t.Helper()
	count := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.waiting)
	}
	for deadline := time.Now().Add(10 * time.Second); count() != n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d requests wait, want %d", count(), n)
		}
	}
}

// TestWaitingTakesNoSlot: a request that waits for its client gives its slot to others,
// and has one again when it goes on.
func TestWaitingTakesNoSlot(t *testing.T) {
	for name, wait := range map[string]func(*Request, *client) error{
		"to read the answer": func(r *Request, _ *client) error { _, err := r.Write(make([]byte, 3<<10)); return err },
		"to send the body":   func(r *Request, c *client) error { _, err := io.ReadAll(r.Body(c, 1)); return err },
	} {
		t.Run(name, func(t *testing.T) {
			l, c := New(1), newClient()
			slow := begin(t, l, c)
			if _, ok := l.Begin(c, httptest.NewRequest("GET", "/", nil)); ok {
				t.Fatal("two requests have one slot")
			}
			done := make(chan error, 1)
			go func() { done <- wait(slow, c) }()
			waits(t, l, 1)
			other := begin(t, l, newClient())
			close(c.read)
			waits(t, l, 0)
			select {
			case err := <-done:
				t.Fatalf("the request went on without a slot: %v", err)
			case <-time.After(20 * time.Millisecond):
			}
			other.End()
			if err := <-done; err != nil || !l.Full() {
				t.Errorf("error %v; full: %v", err, l.Full())
			}
			slow.End()
			if l.Serving() != 0 || l.held != 0 {
				t.Errorf("%d slots and %d bytes are left over", l.Serving(), l.held)
			}
		})
	}
}

// TestSmallAnswersAreNotCounted: net/http buffers them.
func TestSmallAnswersAreNotCounted(t *testing.T) {
	l, w := New(1), httptest.NewRecorder()
	r := begin(t, l, w)
	defer r.End()
	if _, err := r.Write([]byte("small")); err != nil || !l.Full() || w.Body.String() != "small" {
		t.Errorf("error %v, full %v, %q", err, l.Full(), w.Body)
	}
	if n, err := io.Copy(r, strings.NewReader("file")); n != 4 || err != nil || w.Body.String() != "smallfile" {
		t.Errorf("%d, %v, %q", n, err, w.Body)
	}
}

// TestLongestWaitIsCutOff: when the answers hold too much, those that have waited
// longest for their clients end, and not more of them than needed.
func TestLongestWaitIsCutOff(t *testing.T) {
	l := New(10)
	l.maxBytes, l.patience = 3<<20, 50*time.Millisecond
	clients := make([]*client, 4)
	ended := make([]chan error, len(clients))
	for i := range clients {
		clients[i], ended[i] = newClient(), make(chan error, 1)
		r := begin(t, l, clients[i])
		go func() {
			defer r.End()
			_, err := r.Write(make([]byte, 1<<20))
			ended[i] <- err
		}()
		waits(t, l, i+1)
	}
	select {
	case err := <-ended[0]:
		if !errors.Is(err, errCutOff) {
			t.Errorf("the first ended with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("too much is held and no client is cut off")
	}
	waits(t, l, 3)
	for i, c := range clients[1:] {
		close(c.read)
		if err := <-ended[i+1]; err != nil {
			t.Errorf("request %d: %v", i+1, err)
		}
	}
}

// TestAdmitToTheLast: an answer that fits exactly is admitted as one that fits, and not as the one that is larger than the bound.
func TestAdmitToTheLast(t *testing.T) {
	l := New(10)
	l.maxBytes = 1 << 20
	l.hold(&Request{limit: l}, 1<<19)
	if r := (&Request{limit: l}); !r.admit(1<<19) || l.largest != nil {
		t.Errorf("%d of %d bytes are held, the larger one is %p", l.held, l.maxBytes, l.largest)
	}
}

// TestCutOffOnce: the memory of a request that was cut off and has not ended yet makes room once.
func TestCutOffOnce(t *testing.T) {
	l := New(10)
	l.mu.Lock()
	defer l.mu.Unlock()
	cuts := 0
	stalled := &Request{limit: l, since: time.Now().Add(-time.Hour), cut: func() { cuts++ }}
	l.hold(stalled, l.maxBytes)
	l.waiting[stalled] = struct{}{}
	l.hold(&Request{limit: l}, 2*l.maxBytes) // works, and does not wait
	for range 3 {
		l.relieve(time.Now())
		l.timer.Stop()
		l.timer = nil
	}
	if cuts != 1 || l.leaving != l.maxBytes {
		t.Errorf("%d requests were cut off, %d bytes leave", cuts, l.leaving)
	}
}

// TestAdmit: an answer that has not begun waits for the memory of one whose client
// does not read; one may exceed the limit; the others are refused.
func TestAdmit(t *testing.T) {
	l := New(10)
	l.maxBytes, l.patience = 1<<20, 100*time.Millisecond
	unread := newClient()
	first := begin(t, l, unread)
	if !first.Admit(2 << 20) {
		t.Fatal("the first may exceed the limit, and is refused")
	}
	working := begin(t, l, newClient())
	if working.Admit(1) {
		t.Fatal("a second one exceeds the limit")
	}
	working.End()
	done := make(chan error, 1)
	go func() {
		defer first.End()
		_, err := first.Write(make([]byte, 3<<10))
		done <- err
	}()
	waits(t, l, 1)
	second := begin(t, l, newClient())
	defer second.End()
	if !second.Admit(1 << 20) {
		t.Error("an unread answer keeps another one waiting")
	}
	if err := <-done; !errors.Is(err, errCutOff) {
		t.Errorf("the unread answer ended with %v", err)
	}
}

// TestServe: a handler runs with a slot, gives it back while it waits for a body or sends a file, and is cut off if its
// client sends nothing while memory is short. Without a slot it does not run.
func TestServe(t *testing.T) {
	l := New(1)
	l.maxBytes, l.patience = 1<<20, time.Millisecond
	body, calls := newClient(), 0
	req := httptest.NewRequest("PUT", "/", body).WithContext(t.Context())
	served := l.Serve("jane", body, req, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		calls++
		if !l.Full() || l.Serve("jane", w, req, http.NotFoundHandler()) {
			t.Error("two requests have one slot")
		}
		r := w.(*Request)
		r.Hold(2 << 20)
		if _, err := io.ReadAll(req.Body); !errors.Is(err, errCutOff) {
			t.Errorf("a client that sends nothing: %v", err)
		}
		if !l.Full() {
			t.Error("a handler goes on without a slot")
		}
		free := false
		if n, err := r.ReadFrom(readerFunc(func([]byte) (int, error) { free = !l.Full(); return 0, io.EOF })); n != 0 || err != nil || !free {
			t.Errorf("sends a file: %d, %v, without a slot %v", n, err, free)
		}
		if r.Unwrap() != http.ResponseWriter(body) {
			t.Error("the writer behind it is another")
		}
	}))
	if !served || calls != 1 || l.Serving() != 0 || l.held != 0 || len(l.clients) != 0 {
		t.Errorf("served %v, %d times; %d slots, %d bytes and %v are left", served, calls, l.Serving(), l.held, l.clients)
	}
	if New(0).Full() || cap(New(0).slots) != DefaultRequests {
		t.Error("the default is not used")
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestAnswers: an answer of another server is read up to its limit, which may grow with the request.
func TestAnswers(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 100)) }))
	defer web.Close()
	for _, test := range []struct {
		most, times int64
		sent        string
		ok          bool
	}{{100, 0, "", true}, {99, 0, "", false}, {0, 10, "0123456789", true}, {0, 10, "012345678", false}, {99, 10, "0", true}} {
		req, err := http.NewRequest("POST", web.URL, strings.NewReader(test.sent))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := (&http.Client{Transport: Answers{http.DefaultTransport, test.most, test.times}}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(answer.Body); (err == nil) != test.ok || test.ok && len(got) != 100 {
			t.Errorf("%+v: %d bytes, %v", test, len(got), err)
		}
		_ = answer.Body.Close()
	}
	if _, err := (Answers{http.DefaultTransport, 1, 1}).RoundTrip(&http.Request{}); err == nil {
		t.Error("a request that cannot be sent has an answer")
	}
}
