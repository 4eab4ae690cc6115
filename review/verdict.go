package review

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Effect does something outside the database. It may run more than once, also
// after it has succeeded: the process can die before that is recorded. No lock
// is held meanwhile, so it must be right whatever has happened to its subject
// since the review: name what it removes by something that is never used again.
type Effect func(ctx context.Context) error

// Verdict is what a review came to. The zero value is a failure: use the
// functions.
type Verdict struct {
	outcome outcome
	acted   bool
	after   time.Duration
	err     error
	effect  func(context.Context) Verdict // what it comes to outside; nil: nothing to do there
}

type outcome int

const (
	failed outcome = iota
	done
	again
)

var (
	errNoVerdict = errors.New("the review came to no verdict")
	errNoReason  = errors.New("the review failed and gave no reason")
	errTwice     = errors.New("a verdict that was come to outside the transaction has an effect of its own")
)

// Kept says that there was nothing to do, or no subject. The task is done.
func Kept() Verdict { return Verdict{outcome: done} }

// Acted says that the subject was dealt with. The task is done.
func Acted() Verdict { return Verdict{outcome: done, acted: true} }

// Again says that all is well but not over: review it again after a while,
// which may be zero. It ends a row of failures.
func Again(after time.Duration) Verdict { return Verdict{outcome: again, after: max(after, 0)} }

// Progressed is Again for a review that acted.
func Progressed(after time.Duration) Verdict {
	v := Again(after)
	v.acted = true
	return v
}

// Failed says that this task failed, and the others of its batch did not. The
// transaction is committed: nothing may have been written for this task. After
// a statement that failed Review must return the error instead.
func Failed(err error) Verdict {
	if err == nil {
		err = errNoReason
	}
	return Verdict{err: err}
}

// Then adds an effect, to run after the commit and after the effects added
// before. The task is settled when all have succeeded, and fails with the first
// that does not. A failure has no effects.
//
// When the process dies between commit and effect, the task is reviewed again:
// a Reviewer must come to the same effect although the database part is done.
func (v Verdict) Then(effect Effect) Verdict {
	if v.outcome == failed || effect == nil {
		return v
	}
	first := v.effect
	settled := v
	settled.effect = nil
	v.effect = func(ctx context.Context) Verdict {
		result := settled
		if first != nil {
			if result = first(ctx); result.outcome == failed {
				return result
			}
		}
		if err := effect(ctx); err != nil {
			return Failed(fmt.Errorf("effect: %w", err))
		}
		return result
	}
	return v
}

// Outside leaves the verdict to fn, which runs like an Effect, after the commit
// and without a lock: for a review that has to ask others than the database, and
// knows only then when to look again. What an Effect must be, fn must be.
func Outside(fn func(ctx context.Context) Verdict) Verdict {
	return Verdict{outcome: again, effect: func(ctx context.Context) Verdict {
		v := fn(ctx)
		if v.effect != nil {
			return Failed(errTwice)
		}
		return v
	}}
}

// reason is the error of a failure.
func (v Verdict) reason() error {
	if v.err == nil {
		return errNoVerdict
	}
	return v.err
}
