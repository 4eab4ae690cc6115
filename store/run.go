package store

import (
	"context"
	"errors"
	"sync"
)

// Run writes, follows the log, compacts and seals older bodies until ctx ends.
// Then it finishes the current batch, fails the waiting writes, and returns nil.
// Writes that are submitted before Run wait for it. A Store runs once.
func (s *Store) Run(ctx context.Context) error {
	if s.ran.Swap(true) {
		return errors.New("run store: it has run before")
	}
	var running sync.WaitGroup
	for _, loop := range []func(context.Context){s.writer.run, s.warm, s.runFollower, s.runListener, s.runCompactor, s.runResealer} {
		running.Go(func() { loop(ctx) })
	}
	running.Wait()
	return nil
}

func (s *Store) runResealer(ctx context.Context) {
	if err := s.sealed.Reseal(ctx, s.writer.do); err != nil && ctx.Err() == nil {
		s.log.Error("sealing older bodies again stopped; the next start goes on with it", "error", err)
	}
}
