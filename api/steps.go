package api

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The steps of a request, in order. Not every request has all of them.
const (
	stepAuthorized = "authorized" // the client is known and may do this
	stepReceived   = "received"   // the body is in memory
	stepAdmitted   = "admitted"   // within the limit of requests in flight
	stepDecoded    = "decoded"    // options and object are read
	stepStored     = "stored"     // the write is committed
	stepRead       = "read"       // the database has answered
)

// steps are the times at which a request had reached its steps. It costs no memory of
// its own and 0.1 µs a step, so every request has it: only the log of a slow request
// reads it. The library's handlers write in a goroutine that may outlive the request.
type steps struct {
	mu    sync.Mutex
	start time.Time // constant
	count int       // guarded by mu
	list  [6]step   // guarded by mu
}

type step struct {
	name string
	at   time.Duration // since start
}

// mark says that the request has reached a step. What does not fit is dropped.
func (s *steps) mark(name string) {
	at := time.Since(s.start)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count < len(s.list) {
		s.list[s.count] = step{name, at}
		s.count++
	}
}

// String lists the steps with the milliseconds since the request came.
func (s *steps) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for i, step := range s.list[:s.count] {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(step.name)
		b.WriteString(" after ")
		b.WriteString(strconv.FormatInt(step.at.Milliseconds(), 10))
		b.WriteString("ms")
	}
	return b.String()
}

// markStep marks a step of the request that w answers.
func markStep(w http.ResponseWriter, name string) {
	if seen := observedBy(w); seen != nil {
		seen.steps.mark(name)
	}
}

// observedBy finds the observer's writer below others, or returns nil.
func observedBy(w http.ResponseWriter) *observedWriter {
	for {
		switch outer := w.(type) {
		case *observedWriter:
			return outer
		case interface{ Unwrap() http.ResponseWriter }:
			w = outer.Unwrap()
		default:
			return nil
		}
	}
}

// stepsKey is the context key of the *steps of a request that the library serves. Its
// handlers call us with a context only.
type stepsKey struct{}

// withSteps lets markIn find the steps of the request that w answers.
func withSteps(w http.ResponseWriter, req *http.Request) *http.Request {
	seen := observedBy(w)
	if seen == nil {
		return req
	}
	return req.WithContext(context.WithValue(req.Context(), stepsKey{}, &seen.steps))
}

// markIn is markStep for a call of the library.
func markIn(ctx context.Context, name string) {
	if s, ok := ctx.Value(stepsKey{}).(*steps); ok {
		s.mark(name)
	}
}
