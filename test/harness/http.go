package harness

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// Request is one raw HTTP request.
type Request struct {
	Method, Path string
	Body         string
	ContentType  string // empty means application/json
	Accept       string // empty means application/json
	Anonymous    bool   // without the administrator's credentials
	Token        string // sent as bearer token; use with Anonymous
	Trace        string // sent as traceparent; empty if there is none
}

// Answer is the server's response.
type Answer struct {
	Code   int
	Header http.Header
	Body   []byte
}

// HTTP is a client for raw requests. It speaks HTTP/1.1, where a bad request does not
// break a connection that other requests share.
type HTTP struct {
	base             string
	admin, anonymous *http.Client
}

// HTTP makes a client for raw requests.
func (s *Server) HTTP() *HTTP {
	s.t.Helper()
	config := s.Config()
	config.NextProtos = []string{"http/1.1"}
	admin, err := rest.HTTPClientFor(config)
	if err != nil {
		s.t.Fatal(err)
	}
	ca, err := rest.TLSConfigFor(rest.AnonymousClientConfig(config))
	if err != nil {
		s.t.Fatal(err)
	}
	anonymous := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.RootCAs}}}
	h := &HTTP{base: config.Host, admin: admin, anonymous: anonymous}
	s.t.Cleanup(func() {
		admin.CloseIdleConnections()
		anonymous.CloseIdleConnections()
	})
	return h
}

// Do sends a request and reads the whole answer.
func (h *HTTP) Do(t testing.TB, r Request) Answer {
	t.Helper()
	answer, err := h.Try(r)
	if err != nil {
		t.Fatalf("%s %.200s: %v", r.Method, r.Path, err)
	}
	return answer
}

// Try is Do for a server that may be down.
func (h *HTTP) Try(r Request) (Answer, error) {
	response, err := h.send(r, 2*time.Minute)
	if err != nil {
		return Answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return Answer{}, fmt.Errorf("read the answer: %w", err)
	}
	return Answer{Code: response.StatusCode, Header: response.Header, Body: body}, nil
}

func (h *HTTP) send(r Request, timeout time.Duration) (*http.Response, error) {
	request, err := http.NewRequest(r.Method, h.base+r.Path, strings.NewReader(r.Body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	if r.Accept != "" {
		request.Header.Set("Accept", r.Accept)
	}
	if r.Body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if r.ContentType != "" {
		request.Header.Set("Content-Type", r.ContentType)
	}
	if r.Token != "" {
		request.Header.Set("Authorization", "Bearer "+r.Token)
	}
	if r.Trace != "" {
		request.Header.Set("traceparent", r.Trace)
	}
	client := *h.admin
	if r.Anonymous {
		client = *h.anonymous
	}
	client.Timeout = timeout
	return client.Do(request)
}

// Get is a GET that must succeed.
func (h *HTTP) Get(t testing.TB, path string) Answer {
	t.Helper()
	a := h.Do(t, Request{Method: "GET", Path: path})
	if a.Code != http.StatusOK {
		t.Fatalf("GET %s: %d %s", path, a.Code, a.Body)
	}
	return a
}

// Field returns the value at a dotted path of the answer's JSON, as compact
// JSON ("items.0.metadata.name" is `"a"`), or "" when there is none. A dot
// inside a key is written as "\.".
func (a Answer) Field(path string) string {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(a.Body))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return ""
	}
	return Field(value, path)
}

// Field is Answer.Field for a decoded value.
func Field(value any, path string) string {
	for _, step := range strings.Split(strings.ReplaceAll(path, `\.`, "\x00"), ".") {
		step = strings.ReplaceAll(step, "\x00", ".")
		switch v := value.(type) {
		case map[string]any:
			value = v[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(v) {
				return ""
			}
			value = v[i]
		default:
			return ""
		}
	}
	if value == nil {
		return ""
	}
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprintf("%v", value)
	}
	return string(data)
}

// Event is one line of a watch.
type Event struct {
	Type   string
	Object map[string]any
}

// Field is Answer.Field for the event's object.
func (e Event) Field(path string) string { return Field(e.Object, path) }

// Stream is an open watch.
type Stream struct {
	events chan Event
	path   string
}

// Watch opens a watch in JSON; it ends with the test. The answer must be 200.
func (h *HTTP) Watch(t testing.TB, path string) *Stream {
	t.Helper()
	response, err := h.send(Request{Method: "GET", Path: path}, 0)
	if err != nil {
		t.Fatalf("watch %s: %v", path, err)
	}
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		t.Fatalf("watch %s: %s %s", path, response.Status, body)
	}
	s := &Stream{events: make(chan Event, 10000), path: path}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(s.events)
		for decoder := json.NewDecoder(response.Body); ; {
			var e Event
			if decoder.Decode(&e) != nil {
				return
			}
			s.events <- e
		}
	}()
	t.Cleanup(func() {
		response.Body.Close()
		<-done
	})
	return s
}

// Next returns the next event; the test fails if none comes.
func (s *Stream) Next(t testing.TB) Event {
	t.Helper()
	select {
	case e, ok := <-s.events:
		if !ok {
			t.Fatalf("watch %s: ended", s.path)
		}
		return e
	case <-time.After(Patience):
		t.Fatalf("watch %s: no event for %v", s.path, Patience)
	}
	return Event{}
}

// Rest returns the remaining events until the server ends the watch.
func (s *Stream) Rest(t testing.TB) []Event {
	t.Helper()
	var all []Event
	deadline := time.After(Patience)
	for {
		select {
		case e, ok := <-s.events:
			if !ok {
				return all
			}
			all = append(all, e)
		case <-deadline:
			t.Fatalf("watch %s: still open after %v", s.path, Patience)
		}
	}
}
