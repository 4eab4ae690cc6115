package expiry

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"time"

	"github.com/exeunt/exeunt/internal/task"
)

const (
	// parts: the policies of a namespace take one part of so many of the time of a processor. What they cost is up to those who may
	// write them there, so they rest when they took more, and those of other namespaces go on.
	parts = 4
	// atOnce is how much time a namespace that took less may take at once.
	atOnce = 2 * time.Second
	// mostShares bounds the namespaces that are known. Then those that need not rest are forgotten.
	mostShares = 1000
)

// shares is the time that policies have taken, by namespace. ClusterExpiryPolicies are never made to rest.
type shares struct {
	saved time.Duration // zero: atOnce
	mu    sync.Mutex
	paid  map[string]time.Time // until when the time that a namespace took is paid for; guarded by mu
}

// rest returns for how long the policies of a namespace must do nothing.
func (s *shares) rest(namespace string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(time.Until(s.paid[namespace]), 0)
}

// took notes that policies of a namespace took time.
func (s *shares) took(namespace string, d time.Duration) {
	if s == nil || namespace == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.paid == nil {
		s.paid = map[string]time.Time{}
	}
	if len(s.paid) >= mostShares {
		maps.DeleteFunc(s.paid, func(_ string, at time.Time) bool { return at.Before(now) })
	}
	s.paid[namespace] = later(s.paid[namespace], now.Add(-parts*cmp.Or(s.saved, atOnce))).Add(parts * d)
}

// await waits until the policies of a namespace may go on, or ctx ends.
func (s *shares) await(ctx context.Context, namespace string) error {
	for rest := s.rest(namespace); rest > 0; rest = s.rest(namespace) {
		task.Sleep(ctx, rest)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}
