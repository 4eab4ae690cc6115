package dbtest

import (
	"errors"
	"sync"
)

// exits is what Main waits for, and does, after the last test.
var exits exitList

type exitList struct {
	running sync.WaitGroup
	turn    sync.Mutex // held by the step that runs

	mu   sync.Mutex
	last []func() error // guarded by mu
	errs []error        // guarded by mu
}

// AtExit has Main call a function after the last test.
func AtExit(fn func() error) {
	exits.mu.Lock()
	defer exits.mu.Unlock()
	exits.last = append(exits.last, fn)
}

// begin runs a step beside the tests, one step at a time.
func (e *exitList) begin(fn func() error) {
	e.running.Go(func() {
		e.turn.Lock()
		defer e.turn.Unlock()
		e.note(fn())
	})
}

func (e *exitList) note(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.errs = append(e.errs, err)
}

// run waits for the steps that have begun, and runs the last ones.
func (e *exitList) run() error {
	e.running.Wait()
	for _, fn := range e.last {
		e.note(fn())
	}
	return errors.Join(e.errs...)
}
