// Package inflight limits how many requests a listener serves at once, and how
// much memory their answers hold.
//
// A request has a slot while the server works for it. While it waits for its
// client, which sends the body or reads the answer, it gives the slot back: clients
// that do not send or read cannot take the slots of others. What such requests
// hold in memory is counted. When all of them together hold more than the limit,
// those that have waited longest for their client are cut off.
//
// Clients share the slots: one that has more than its share leaves a tenth of the slots
// to others (BeginFor).
//
// Connections of clients that have shown no credential are limited by Strangers, and what
// this server reads from others, as their client, by Answers.
//
// The package knows HTTP and nothing of what is served. Begin with Limit.Begin.
package inflight

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// DefaultRequests is the default limit on requests served at once.
	DefaultRequests = 600
	// maxBytes limits the memory that answers and bodies hold.
	maxBytes = 256 << 20
	// leastBytes is what a request that waits for its client holds at least:
	// its goroutine, the buffers of its connection.
	leastBytes = 64 << 10
	// patience is how long a client may send or read nothing before its request
	// can be cut off in favour of others.
	patience = 2 * time.Second
)

// Limit limits the requests of one listener. It is safe for concurrent use.
type Limit struct {
	slots    chan struct{} // one element for each request being served
	maxBytes int64
	patience time.Duration

	mu      sync.Mutex
	clients map[string]int        // slots by client, of those that have any; guarded by mu
	held    int64                 // bytes of all requests; guarded by mu
	leaving int64                 // of them, bytes of requests that were cut off; guarded by mu
	wanted  int64                 // bytes that Admit waits for; guarded by mu
	largest *Request              // the one request that may exceed the limit; guarded by mu
	waiting map[*Request]struct{} // guarded by mu
	timer   *time.Timer           // set while relieve is due; guarded by mu
}

// New makes a limit. 0 requests: DefaultRequests.
func New(requests int) *Limit {
	if requests <= 0 {
		requests = DefaultRequests
	}
	return &Limit{slots: make(chan struct{}, requests), maxBytes: maxBytes, patience: patience, clients: map[string]int{}, waiting: map[*Request]struct{}{}}
}

// Full reports whether all slots are taken.
func (l *Limit) Full() bool { return l.Serving() == cap(l.slots) }

// Serving is the number of slots that are taken.
func (l *Limit) Serving() int { return len(l.slots) }

// Begin takes a slot, or reports false if all are taken: it does not queue. The
// handler answers through the returned Request, reads the body through Body, and
// calls End when it returns.
func (l *Limit) Begin(w http.ResponseWriter, req *http.Request) (*Request, bool) {
	return l.BeginFor("", w, req)
}

// BeginFor is Begin for a client, which must not starve others. Its share is the number
// of slots, divided by the clients that are being served and one more, who may come. Up
// to its share it takes any slot; above, it leaves a tenth of the slots free, so that a
// new client finds one at once, and takes over what ends until all have their share. An
// empty name has no share.
func (l *Limit) BeginFor(client string, w http.ResponseWriter, req *http.Request) (*Request, bool) {
	if !l.take(client, 1) {
		return nil, false
	}
	return &Request{ResponseWriter: w, limit: l, client: client, ctx: req.Context(), slot: true}, true
}

// Take takes n slots for a client, each as BeginFor does, or none. giveBack gives them back.
func (l *Limit) Take(client string, n int) (giveBack func(), ok bool) {
	if !l.take(client, n) {
		return nil, false
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.give(client, n)
	}, true
}

func (l *Limit) take(client string, n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for taken := range n {
		if !l.mayTake(client) || !l.takeOne(client) {
			l.give(client, taken)
			return false
		}
	}
	return true
}

// takeOne requires mu.
func (l *Limit) takeOne(client string) bool {
	select {
	case l.slots <- struct{}{}:
		l.count(client, 1)
		return true
	default:
		return false
	}
}

// give requires mu.
func (l *Limit) give(client string, n int) {
	for range n {
		<-l.slots
	}
	l.count(client, -n)
}

// Serve serves a request of a client with a slot, which it gives back while it waits for
// the body. It reports false, and has not answered, if there is none.
func (l *Limit) Serve(client string, w http.ResponseWriter, req *http.Request, next http.Handler) bool {
	r, ok := l.BeginFor(client, w, req)
	if !ok {
		return false
	}
	defer r.End()
	limited := req.WithContext(req.Context())
	if req.Body != nil {
		limited.Body = r.Body(req.Body, 0)
	}
	next.ServeHTTP(r, limited)
	return true
}

// mayTake requires mu.
func (l *Limit) mayTake(client string) bool {
	if client == "" {
		return true
	}
	has := l.clients[client]
	others := len(l.clients)
	if has > 0 {
		others--
	}
	total := cap(l.slots)
	return has < max(1, total/(others+2)) || total-len(l.slots) > total/10
}

// count requires mu.
func (l *Limit) count(client string, by int) {
	if client == "" {
		return
	}
	if l.clients[client] += by; l.clients[client] <= 0 {
		delete(l.clients, client)
	}
}

// Request is a request with a slot, and the ResponseWriter of its answer. It is for
// the goroutine of its handler.
type Request struct {
	http.ResponseWriter
	limit   *Limit
	client  string
	ctx     context.Context // of the request
	slot    bool
	written int
	admitBy time.Time // when Admit gives up; zero if it has not waited yet

	// Guarded by limit.mu.
	held  int64     // bytes
	since time.Time // when the current wait began
	cut   func()    // ends the current wait; nil if not waiting
	gone  bool      // was cut off
}

// End gives back what the request has.
func (r *Request) End() {
	r.giveSlot()
	r.Hold(0)
	l := r.limit
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.largest == r {
		l.largest = nil
	}
}

func (r *Request) giveSlot() {
	if !r.slot {
		return
	}
	r.limit.mu.Lock()
	defer r.limit.mu.Unlock()
	r.slot = false
	r.limit.give(r.client, 1)
}

// takeSlot waits for a slot. A request that has ended goes on without one, to
// return.
func (r *Request) takeSlot() {
	select {
	case r.limit.slots <- struct{}{}:
		r.slot = true
	case <-r.ctx.Done():
		return
	}
	r.limit.mu.Lock()
	defer r.limit.mu.Unlock()
	r.limit.count(r.client, 1)
}

// Hold sets how many bytes the request holds. Above the limit, requests that wait
// for their clients are cut off. A nil Request holds nothing.
func (r *Request) Hold(bytes int64) {
	if r == nil {
		return
	}
	l := r.limit
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hold(r, bytes)
	l.relieve(time.Now())
}

// hold requires mu.
func (l *Limit) hold(r *Request, bytes int64) {
	l.held += bytes - r.held
	if r.gone {
		l.leaving += bytes - r.held
	}
	r.held = bytes
}

// Admit is Hold for an answer that has not begun and may still be refused: above the
// limit it waits for memory, without a slot, and reports false if there is none. All
// waits of a request take five times as long as clients may be silent, at most.
// One request at a time may exceed the limit, so that large answers do not wait for
// each other. A nil Request is always admitted.
func (r *Request) Admit(bytes int64) bool {
	if r == nil || r.admit(bytes) {
		return true
	}
	r.giveSlot()
	defer r.takeSlot()
	if r.admitBy.IsZero() {
		r.admitBy = time.Now().Add(5 * r.limit.patience)
	}
	for ; time.Now().Before(r.admitBy) && r.ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		if r.admit(bytes) {
			return true
		}
	}
	return false
}

func (r *Request) admit(bytes int64) bool {
	l := r.limit
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held-r.held+bytes > l.maxBytes {
		if l.largest != nil && l.largest != r {
			l.wanted = max(l.wanted, bytes-r.held, l.maxBytes/8) // more than one step of a growing answer
			l.relieve(time.Now())
			return false
		}
		l.largest = r
	}
	l.hold(r, bytes)
	l.relieve(time.Now())
	return true
}

// wait gives the slot back while do waits for the client. The request holds at
// least bytes meanwhile. cut makes do return.
func (r *Request) wait(bytes int64, cut, do func()) {
	l := r.limit
	l.mu.Lock()
	before := r.held
	l.hold(r, max(before, bytes, leastBytes))
	r.since, r.cut = time.Now(), cut
	l.waiting[r] = struct{}{}
	l.relieve(r.since)
	l.mu.Unlock()
	r.giveSlot()

	do()

	l.mu.Lock() // also waits for cut: the connection may not be used after the handler
	delete(l.waiting, r)
	r.cut = nil
	l.hold(r, before)
	l.mu.Unlock()
	r.takeSlot()
}

// relieve cuts requests off if more memory is held than allowed. It repeats this
// every eighth of patience while that is so, and not more often. It requires mu.
func (l *Limit) relieve(now time.Time) {
	if l.timer != nil || !l.over() {
		return
	}
	stalled := make([]*Request, 0, len(l.waiting))
	for r := range l.waiting {
		if !r.gone && now.Sub(r.since) >= l.patience {
			stalled = append(stalled, r)
		}
	}
	slices.SortFunc(stalled, func(a, b *Request) int { return a.since.Compare(b.since) })
	for _, r := range stalled {
		if !l.over() {
			break
		}
		r.gone = true
		l.leaving += r.held
		r.cut()
	}
	l.wanted = 0
	l.timer = time.AfterFunc(l.patience/8, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.timer = nil
		l.relieve(time.Now())
	})
}

// over requires mu.
func (l *Limit) over() bool { return l.held-l.leaving+l.wanted > l.maxBytes }
