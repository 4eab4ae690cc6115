// Package reviewtest is the suite that every reviewer must pass. It runs a reviewer
// in an engine and causes the events of production: the same task again, a subject
// that is gone, a process that dies between any two steps, two replicas, a row
// whose review always fails.
//
// The owner of a queue describes the reviewer and its subjects with a [World];
// begin with [Run].
package reviewtest

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
)

// World is a reviewer and the subjects that it reviews, on a fresh database.
type World struct {
	DB         *sqldb.DB
	Queue      review.Queue
	Reviewer   review.Reviewer[review.Tx]   // for another type of transaction see [Plain]
	Transactor review.Transactor[review.Tx] // nil means plain transactions

	// Garbage makes a subject that a review must collect, enqueues it as the
	// system does, and returns its key.
	Garbage func(t *testing.T) (key string)
	// Live makes a subject that a review must keep, and enqueues it. A review
	// takes it out of the queue.
	Live func(t *testing.T) (key string)
	// Unknown is a well-formed key that has no subject.
	Unknown string
	// Collected reports whether a subject is gone, with everything that belongs
	// to it outside the database.
	Collected func(t *testing.T, key string) bool
	// Intact reports whether a subject exists, with everything that belongs to it.
	Intact func(t *testing.T, key string) bool
}

// Run runs the suite. newWorld is called once for each test in it.
func Run(t *testing.T, newWorld func(t *testing.T) World) {
	tests := []struct {
		name string
		test func(*suite)
	}{
		{"garbage is collected and the rest is kept", testCollect},
		{"repeated review is harmless", testRepeat},
		{"subject gone", testGone},
		{"death between act and settle", testDeathBeforeCommit},
		{"death between commit and effect", testDeathAfterCommit},
		{"death between effect and settle", testDeathAfterEffect},
		{"lease expiry takes over", testTakeOver},
		{"enqueued again between claim and review", testEnqueuedAfterClaim},
		{"enqueued again by the review itself", testEnqueuedByReview},
		{"enqueued again during the review", testEnqueuedDuringReview},
		{"enqueued again during the effect", testEnqueuedDuringEffect},
		{"poisoned row", testPoisoned},
		{"poisoned row that panics", testPanic},
		{"two replicas", testReplicas},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.test(&suite{T: t, World: newWorld(t), clock: clock{now: time.Now()}})
		})
	}
}

// suite is one test.
type suite struct {
	*testing.T
	World
	clock clock

	garbage, live []string
}

// clock is moved by the suite.
type clock struct {
	mu  sync.Mutex
	now time.Time // guarded by mu
}

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// advance moves the clock, but never back.
func (c *clock) advance(to time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if to.After(c.now) {
		c.now = to
	}
}

const (
	lease = time.Minute
	// maxTurns bounds how long a queue may take to drain.
	maxTurns = 500
)

// engine makes an engine of the world, with parts of it replaced.
func (s *suite) engine(change ...func(*part)) *review.Engine {
	s.Helper()
	p := part{reviewer: s.Reviewer, transactor: s.Transactor, batch: 50}
	if p.transactor == nil {
		p.transactor = review.Transactions(s.DB)
	}
	for _, f := range change {
		f(&p)
	}
	q := s.Queue
	q.Lease, q.Batch = lease, p.batch
	e, err := review.New(s.DB, q, p.reviewer, p.transactor, review.Options{Now: s.clock.read, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		s.Fatal(err)
	}
	return e
}

// part is what a test can replace in an engine.
type part struct {
	reviewer   review.Reviewer[review.Tx]
	transactor review.Transactor[review.Tx]
	batch      int
}

// reviewFunc is a Reviewer.
type reviewFunc func(ctx context.Context, tx review.Tx, now time.Time, tasks []review.Task) ([]review.Verdict, error)

func (f reviewFunc) Review(ctx context.Context, tx review.Tx, now time.Time, tasks []review.Task) ([]review.Verdict, error) {
	return f(ctx, tx, now, tasks)
}

// Plain is a reviewer and its transactor as the suite takes them. The suite wraps
// the one around the other and never makes a transaction itself, so each
// transaction that the reviewer gets is a T.
func Plain[T review.Tx](r review.Reviewer[T], t review.Transactor[T]) (review.Reviewer[review.Tx], review.Transactor[review.Tx]) {
	reviewer := reviewFunc(func(ctx context.Context, tx review.Tx, now time.Time, tasks []review.Task) ([]review.Verdict, error) {
		return r.Review(ctx, tx.(T), now, tasks)
	})
	return reviewer, func(ctx context.Context, fn func(review.Tx) error) error {
		return t(ctx, func(tx T) error { return fn(tx) })
	}
}

// populate makes n garbage and n live subjects.
func (s *suite) populate(n int) {
	s.Helper()
	for range n {
		s.garbage = append(s.garbage, s.Garbage(s.T))
		s.live = append(s.live, s.Live(s.T))
	}
	if depth := s.stats(s.engine()).Depth; depth < 2*n {
		s.Fatalf("%d subjects put only %d tasks into the queue", 2*n, depth)
	}
	for _, key := range slices.Concat(s.garbage, s.live) {
		if s.Collected(s.T, key) || !s.Intact(s.T, key) {
			s.Fatalf("%s is not intact before its review", key)
		}
	}
}

// due moves the clock until a task can be claimed.
func (s *suite) due() {
	s.Helper()
	s.clock.advance(s.stats(s.engine()).Due)
}

// turn runs one turn and fails the test on an error.
func (s *suite) turn(e *review.Engine) review.Result {
	s.Helper()
	r, err := e.RunOne(s.Context())
	if err != nil {
		s.Fatalf("turn: %v", err)
	}
	if sum := r.Done + r.Postponed + r.Failed + r.Left; sum != r.Claimed {
		s.Fatalf("claimed %d tasks but accounted for %d: %+v", r.Claimed, sum, r)
	}
	return r
}

// drain runs turns, and moves the clock, until the queue is empty. It returns the
// sums of the results.
func (s *suite) drain(e *review.Engine) (sum review.Result) {
	s.Helper()
	for range maxTurns {
		r := s.turn(e)
		if r.Claimed == 0 && r.Next.IsZero() {
			return sum
		}
		s.clock.advance(r.Next)
		sum.Claimed += r.Claimed
		sum.Failed += r.Failed
		sum.Left += r.Left
		sum.Acted += r.Acted
	}
	s.Fatalf("the queue is not empty after %d turns: %+v", maxTurns, s.stats(e))
	return sum
}

func (s *suite) stats(e *review.Engine) review.Stats {
	s.Helper()
	stats, err := e.Stats(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	return stats
}

// enqueue enqueues in a transaction of its own. It may run concurrently with the
// test.
func (s *suite) enqueue(e *review.Engine, keys ...string) {
	s.Helper()
	var b sqldb.Batch
	for _, key := range keys {
		e.Enqueue(&b, key, "test", s.clock.read())
	}
	if err := review.Transactions(s.DB)(s.Context(), func(tx review.Tx) error { return tx.Send(s.Context(), &b) }); err != nil {
		s.Errorf("enqueue: %v", err)
	}
}

// check checks what must hold when the queue is empty.
func (s *suite) check() {
	s.Helper()
	for _, key := range s.garbage {
		if !s.Collected(s.T, key) {
			s.Errorf("garbage %s was not collected", key)
		}
	}
	for _, key := range s.live {
		if s.Collected(s.T, key) || !s.Intact(s.T, key) {
			s.Errorf("live %s is not intact", key)
		}
	}
	if stats := s.stats(s.engine()); stats.Depth != 0 {
		s.Errorf("the queue is not empty: %+v", stats)
	}
}
