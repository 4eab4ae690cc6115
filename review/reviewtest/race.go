package reviewtest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
)

// once returns an engine that calls fn the first time it has reviewed tasks,
// inside the transaction.
func (s *suite) once(fn func(tx review.Tx, tasks []review.Task, verdicts []review.Verdict)) *review.Engine {
	s.Helper()
	var first sync.Once
	return s.engine(func(p *part) {
		inner := p.reviewer
		p.reviewer = reviewFunc(func(ctx context.Context, tx review.Tx, now time.Time, tasks []review.Task) ([]review.Verdict, error) {
			verdicts, err := inner.Review(ctx, tx, now, tasks)
			if err == nil {
				first.Do(func() { fn(tx, tasks, verdicts) })
			}
			return verdicts, err
		})
	})
}

func keys(tasks []review.Task) []string {
	var keys []string
	for _, task := range tasks {
		keys = append(keys, task.Key)
	}
	return keys
}

// missed runs the turn in which tasks are enqueued again, and then expects each of
// them to be in the queue, unclaimed and due.
func (s *suite) missed(e *review.Engine, again *[]string) {
	s.Helper()
	s.due()
	r := s.turn(e)
	if len(*again) == 0 || r.Left < len(*again) {
		s.Errorf("%d tasks were enqueued again, %d were left: %+v", len(*again), r.Left, r)
	}
	for _, key := range *again {
		task, found, err := e.Get(s.Context(), key)
		if err != nil || !found || !task.Claimed.IsZero() || task.Due.After(s.clock.read()) {
			s.Errorf("%s was enqueued again and is lost: %+v, %v, %v", key, task, found, err)
		}
	}
	s.drain(e)
	s.check()
}

func testEnqueuedAfterClaim(s *suite) {
	s.populate(2)
	var again []string
	var first sync.Once
	e := s.engine(func(p *part) {
		inner := p.transactor
		p.transactor = func(ctx context.Context, fn func(review.Tx) error) error {
			first.Do(func() {
				again = s.garbage
				s.enqueue(s.engine(), again...)
			})
			return inner(ctx, fn)
		}
	})
	s.clock.advance(s.clock.read().Add(48 * time.Hour))
	s.missed(e, &again)
}

// testEnqueuedByReview: the writes of a review can fire the trigger that
// enqueues its own task.
func testEnqueuedByReview(s *suite) {
	s.populate(2)
	var again []string
	e := s.once(func(tx review.Tx, tasks []review.Task, _ []review.Verdict) {
		again = keys(tasks)
		var b sqldb.Batch
		for _, key := range again {
			s.engine().Enqueue(&b, key, "test", s.clock.read())
		}
		if err := tx.Send(s.Context(), &b); err != nil {
			s.Errorf("enqueue in the review's transaction: %v", err)
		}
	})
	s.missed(e, &again)
}

// testEnqueuedDuringReview: on PostgreSQL another transaction enqueues the
// tasks and commits without waiting while the review's transaction is open. SQLite
// has one transaction at a time: there the other one begins during the review and
// commits after it.
func testEnqueuedDuringReview(s *suite) {
	s.populate(2)
	var again []string
	if s.DB.Engine() == sqldb.Postgres {
		e := s.once(func(_ review.Tx, tasks []review.Task, _ []review.Verdict) {
			again = keys(tasks)
			s.enqueue(s.engine(), again...)
		})
		s.missed(e, &again)
		return
	}
	var waiting sync.WaitGroup
	e := s.once(func(_ review.Tx, tasks []review.Task, _ []review.Verdict) {
		again = keys(tasks)
		waiting.Go(func() { s.enqueue(s.engine(), again...) })
	})
	s.due()
	s.turn(e)
	waiting.Wait()
	for _, key := range again {
		if _, found, err := e.Get(s.Context(), key); err != nil || !found {
			s.Errorf("%s was enqueued again and is lost: %v", key, err)
		}
	}
	s.drain(e)
	s.check()
}

func testEnqueuedDuringEffect(s *suite) {
	s.populate(2)
	var again []string
	e := s.once(func(_ review.Tx, tasks []review.Task, verdicts []review.Verdict) {
		again = keys(tasks)
		for i := range verdicts {
			verdicts[i] = verdicts[i].Then(func(context.Context) error {
				s.enqueue(s.engine(), tasks[i].Key)
				return nil
			})
		}
	})
	s.missed(e, &again)
}

func testPoisoned(s *suite) {
	s.poison("poisoned", func() error { return errors.New("poisoned") })
}

func testPanic(s *suite) {
	s.poison("panic: poisoned", func() error { panic("poisoned") })
}

// poison fails the review of every batch that contains a certain task, after the
// reviewer has acted. The other tasks must still be settled.
func (s *suite) poison(lastError string, fail func() error) {
	s.Helper()
	s.populate(6)
	s.clock.advance(s.clock.read().Add(48 * time.Hour))
	poisoned := s.garbage[3]
	e := s.engine(func(p *part) {
		inner := p.reviewer
		p.reviewer = reviewFunc(func(ctx context.Context, tx review.Tx, now time.Time, tasks []review.Task) ([]review.Verdict, error) {
			verdicts, err := inner.Review(ctx, tx, now, tasks)
			for _, task := range tasks {
				if task.Key == poisoned {
					return nil, fail()
				}
			}
			return verdicts, err
		})
	})
	if r := s.turn(e); r.Claimed < 12 || r.Failed != 1 {
		s.Errorf("want 12 tasks claimed and one failure: %+v", r)
	}
	for _, key := range s.garbage {
		if s.Collected(s.T, key) != (key != poisoned) {
			s.Errorf("%s: collected is %v; poisoned is %s", key, key == poisoned, poisoned)
		}
	}
	task, found, err := e.Get(s.Context(), poisoned)
	if err != nil || !found || task.Count != 1 || !strings.Contains(task.LastError, lastError) {
		s.Fatalf("the poisoned task is %+v (%v, %v), want one failure: %s", task, found, err, lastError)
	}
	if !task.Due.After(s.clock.read()) || !task.Claimed.IsZero() {
		s.Errorf("the poisoned task is not postponed: %+v", task)
	}
	s.drain(s.engine()) // cured
	s.check()
}

// testReplicas runs several replicas on one queue, and checks that no task is
// under review in two of them.
func testReplicas(s *suite) {
	s.populate(20)
	s.clock.advance(s.clock.read().Add(48 * time.Hour))
	var mu sync.Mutex
	busy := map[string]bool{}
	watched := func(p *part) {
		var mine []string // under review by this engine
		inner, innerTransactor := p.reviewer, p.transactor
		p.batch = 3
		p.reviewer = reviewFunc(func(ctx context.Context, tx review.Tx, now time.Time, tasks []review.Task) ([]review.Verdict, error) {
			mu.Lock()
			for _, key := range keys(tasks) {
				if busy[key] {
					s.Errorf("%s is under review twice", key)
				}
				busy[key] = true
			}
			mine = keys(tasks)
			mu.Unlock()
			return inner.Review(ctx, tx, now, tasks)
		})
		p.transactor = func(ctx context.Context, fn func(review.Tx) error) error {
			return innerTransactor(ctx, func(tx review.Tx) error {
				err := fn(tx)
				mu.Lock()
				defer mu.Unlock()
				for _, key := range mine {
					delete(busy, key)
				}
				mine = nil
				return err
			})
		}
	}
	var running sync.WaitGroup
	for range 3 {
		running.Go(func() { s.drainDue(s.engine(watched)) })
	}
	running.Wait()
	s.drain(s.engine()) // what was postponed
	s.check()
}

// drainDue runs turns until nothing is due or under review, without moving the
// clock. It may run concurrently with others.
func (s *suite) drainDue(e *review.Engine) {
	for range 100 * maxTurns {
		r, err := e.RunOne(s.Context())
		if err != nil {
			s.Errorf("turn: %v", err)
			return
		}
		if r.Failed > 0 {
			s.Errorf("a review failed: %+v", r)
		}
		if r.Claimed > 0 {
			continue
		}
		stats, err := e.Stats(s.Context())
		if err != nil {
			s.Errorf("stats: %v", err)
			return
		}
		if stats.Overdue == 0 && stats.Claimed == 0 {
			return
		}
	}
	s.Error("the queue does not drain")
}
