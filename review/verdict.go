package review

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Effect does something outside the database. It must be idempotent: it may run
// again after it has succeeded, because the process can die before it records
// that. It runs without a lock, so it must be correct whatever has happened to its
// subject since the review: use a name that is never reused for what it removes.
type Effect func(ctx context.Context) error

// Verdict is the result of a review. The zero value is a failure: use the
// functions to make one.
type Verdict struct {
	outcome outcome
	acted   bool
	after   time.Duration
	err     error
	effect  func(context.Context) Verdict // runs the effects and returns the final verdict; nil: no effects
}

type outcome int

const (
	failed outcome = iota
	done
	again
)

var (
	errNoVerdict = errors.New("the review returned no verdict")
	errNoReason  = errors.New("the review failed and gave no reason")
	errTwice     = errors.New("a verdict from Outside must not have an effect")
)

// Kept says that there is nothing to do, or no subject. The task is done.
func Kept() Verdict { return Verdict{outcome: done} }

// Acted says that the review acted on the subject. The task is done.
func Acted() Verdict { return Verdict{outcome: done, acted: true} }

// Again says that the task must be reviewed again after a time, which may be zero.
// It is a success: it resets the count of failures.
func Again(after time.Duration) Verdict { return Verdict{outcome: again, after: max(after, 0)} }

// Progressed is Again for a review that acted.
func Progressed(after time.Duration) Verdict {
	v := Again(after)
	v.acted = true
	return v
}

// Failed says that this task failed, and not the others of its batch. The
// transaction commits, so Review must not have written anything for this task. If
// a statement fails, Review must return the error instead.
func Failed(err error) Verdict {
	if err == nil {
		err = errNoReason
	}
	return Verdict{err: err}
}

// Then adds an effect that runs after the commit and after the effects added
// before. The task is settled when all effects have succeeded, and fails with the
// first that fails. A failed verdict has no effects.
//
// When the process dies between commit and effect, the task is reviewed again: the
// Reviewer must then return the same effect, although the database part is done.
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

// Outside lets fn decide the verdict. fn runs like an Effect, after the commit and
// without a lock: for a review that depends on a system outside the database. fn
// must obey the rules of an Effect.
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
