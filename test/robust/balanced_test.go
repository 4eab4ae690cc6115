package robust_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// balanced is a client behind a load balancer: it asks each replica's /readyz twice a
// second, writes through one that is ready, and tries another after two seconds. It
// measures how long no write succeeded.
type balanced struct {
	replicas []api
	rng      *rand.Rand

	mu     sync.Mutex
	ready  []bool // guarded by mu
	gaps   []gap  // guarded by mu; those longer than shortGap
	writes int    // guarded by mu
}

// gap is a time without a successful write.
type gap struct{ from, to time.Time }

const shortGap = 100 * time.Millisecond

func (b *balanced) run(ctx context.Context) {
	b.ready = make([]bool, len(b.replicas))
	var probes sync.WaitGroup
	for i := range b.replicas {
		probes.Go(func() { b.probe(ctx, i) })
	}
	last := time.Now()
	for n := 0; ctx.Err() == nil; n++ {
		r, ok := b.choose()
		if ok && within(ctx, 2*time.Second, func(ctx context.Context) bool {
			return r.do(ctx, "POST", collection, fmt.Sprintf(`{"metadata":{"name":"b-%d"}}`, n)).code == 201
		}) {
			now := time.Now()
			b.note(gap{last, now})
			last = now
			if within(ctx, 2*time.Second, func(ctx context.Context) bool { // lists stay short
				return r.do(ctx, "DELETE", fmt.Sprintf("%s/b-%d", collection, n), "").code == 200
			}) {
				now = time.Now()
				b.note(gap{last, now})
				last = now
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	probes.Wait()
}

func within(ctx context.Context, limit time.Duration, do func(context.Context) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return do(ctx)
}

func (b *balanced) probe(ctx context.Context, i int) {
	for ctx.Err() == nil {
		ok := within(ctx, time.Second, func(ctx context.Context) bool { return b.replicas[i].do(ctx, "GET", "/readyz", "").code == 200 })
		b.mu.Lock()
		b.ready[i] = ok
		b.mu.Unlock()
		time.Sleep(500 * time.Millisecond)
	}
}

// choose returns a replica that is ready.
func (b *balanced) choose() (api, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := b.rng.IntN(len(b.replicas))
	for i := range b.replicas {
		if at := (first + i) % len(b.replicas); b.ready[at] {
			return b.replicas[at], true
		}
	}
	return api{}, false
}

func (b *balanced) note(g gap) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writes++
	if g.to.Sub(g.from) > shortGap {
		b.gaps = append(b.gaps, g)
	}
}
