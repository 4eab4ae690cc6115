package reviewtest

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/exeunt/exeunt/review"
)

var errDied = errors.New("died")

// die runs a turn of an engine that dies in it: one of its parts calls
// runtime.Goexit, so that no more of its code runs, and its claims stay in the
// database as after the death of a process.
func (s *suite) die(e *review.Engine) {
	s.Helper()
	var survived bool
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err = e.RunOne(s.Context())
		survived = true
	}()
	<-done
	if survived {
		s.Fatalf("the engine did not come to where it dies: %v", err)
	}
}

func testCollect(s *suite) {
	s.populate(3)
	r := s.drain(s.engine())
	if r.Failed != 0 || r.Acted < len(s.garbage) {
		s.Errorf("want no failures and at least %d acts: %+v", len(s.garbage), r)
	}
	s.check()
}

func testRepeat(s *suite) {
	s.populate(2)
	e := s.engine()
	s.drain(e)
	s.check()
	for range 2 {
		s.enqueue(e, s.garbage...)
		s.enqueue(e, s.live...)
		if r := s.drain(e); r.Failed != 0 {
			s.Errorf("a repeated review failed: %+v", r)
		}
		s.check()
	}
}

func testGone(s *suite) {
	s.populate(1)
	e := s.engine()
	s.enqueue(e, s.Unknown)
	if r := s.drain(e); r.Failed != 0 {
		s.Errorf("the review of a subject that does not exist failed: %+v", r)
	}
	s.check()
}

// testDeathBeforeCommit: the writes are rolled back, and the next review repeats
// them.
func testDeathBeforeCommit(s *suite) {
	s.populate(2)
	s.due()
	s.die(s.engine(func(p *part) {
		inner := p.transactor
		p.transactor = func(ctx context.Context, fn func(review.Tx) error) error {
			err := inner(ctx, func(tx review.Tx) error {
				if err := fn(tx); err != nil {
					return err
				}
				return errDied
			})
			if !errors.Is(err, errDied) {
				s.Errorf("the review failed: %v", err)
			}
			runtime.Goexit()
			return nil
		}
	}))
	for _, key := range s.garbage {
		if s.Collected(s.T, key) || !s.Intact(s.T, key) {
			s.Errorf("%s was touched by a transaction that was not committed", key)
		}
	}
	s.rescue()
}

// testDeathAfterCommit: the next review of the task runs the effects outside the
// database.
func testDeathAfterCommit(s *suite) {
	s.populate(2)
	s.due()
	s.die(s.engine(func(p *part) {
		inner := p.transactor
		p.transactor = func(ctx context.Context, fn func(review.Tx) error) error {
			if err := inner(ctx, fn); err != nil {
				s.Errorf("the review failed: %v", err)
			}
			runtime.Goexit()
			return nil
		}
	}))
	s.rescue()
}

// testDeathAfterEffect: an effect that was not recorded runs again.
func testDeathAfterEffect(s *suite) {
	s.populate(2)
	s.due()
	var died atomic.Bool
	e := s.engine(func(p *part) {
		inner := p.reviewer
		p.reviewer = reviewFunc(func(ctx context.Context, tx review.Tx, now time.Time, tasks []review.Task) ([]review.Verdict, error) {
			verdicts, err := inner.Review(ctx, tx, now, tasks)
			for i := range verdicts {
				verdicts[i] = verdicts[i].Then(func(context.Context) error { died.Store(true); return errDied })
			}
			return verdicts, err
		})
	})
	// Tasks that the review itself has enqueued again are left, not failed.
	if r := s.turn(e); !died.Load() || r.Failed+r.Left == 0 {
		s.Errorf("no effect was run: %+v", r)
	}
	s.rescue()
}

// testTakeOver: other engines can claim the tasks only after the lease has ended.
func testTakeOver(s *suite) {
	s.populate(2)
	s.clock.advance(s.clock.read().Add(48 * time.Hour))
	s.die(s.engine(func(p *part) {
		p.transactor = func(context.Context, func(review.Tx) error) error {
			runtime.Goexit()
			return nil
		}
	}))
	other := s.engine()
	s.clock.advance(s.clock.read().Add(lease - time.Second))
	r := s.turn(other)
	if want := s.clock.read().Add(time.Second); r.Claimed != 0 || r.Next.Sub(want).Abs() > time.Millisecond {
		s.Errorf("before the lease has ended: %+v; want nothing claimed, and the next turn at %v", r, want)
	}
	s.clock.advance(s.clock.read().Add(time.Second))
	if r := s.turn(other); r.Claimed == 0 {
		s.Error("after the lease has ended nothing can be claimed")
	}
	s.drain(other)
	s.check()
}

// rescue drains the queue with another engine after a death.
func (s *suite) rescue() {
	s.Helper()
	if r := s.drain(s.engine()); r.Failed != 0 {
		s.Errorf("the review after a death failed: %+v", r)
	}
	s.check()
}
