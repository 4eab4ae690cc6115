package bench

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"
)

// RunCreate makes the objects, as fast as the clients can. It expects them not
// to be there: one that is counts as an error.
func RunCreate(ctx context.Context, config Config) (Result, error) {
	text() // made once, and not on the clock
	return runOnEach(ctx, config, "create", (*session).create)
}

func (s *session) create(ctx context.Context, c client, n int) (int64, error) {
	return c.discard(ctx, http.MethodPost, s.path, "", writeHeader, configMap(n, s.Size))
}

// runOnEach does one thing to every object, once. What is not a create finds
// them there.
func runOnEach(ctx context.Context, config Config, name string, do func(*session, context.Context, client, int) (int64, error)) (Result, error) {
	s, err := open(ctx, config)
	if err != nil {
		return Result{}, err
	}
	defer s.pool.close()
	if name != "create" {
		if err := s.seed(ctx); err != nil {
			return Result{}, err
		}
	}
	m, err := startMeter(s.PID)
	if err != nil {
		return Result{}, err
	}
	t := s.onEach(ctx, func(c client, n int) (int64, error) { return do(s, ctx, c, n) })
	measure, err := m.stop(name, t)
	if err != nil {
		return Result{}, err
	}
	return Result{Workload: name, Measures: []Measure{measure}}, ctx.Err()
}

// onEach calls do for every object once, the clients all at once.
func (s *session) onEach(ctx context.Context, do func(c client, n int) (int64, error)) *tally {
	var next atomic.Int64
	return s.each(func(_ int, c client, t *tally) {
		for ctx.Err() == nil {
			n := int(next.Add(1)) - 1
			if n >= s.Objects {
				return
			}
			begin := time.Now()
			bytes, err := do(c, n)
			t.count(time.Since(begin), bytes, err)
		}
	})
}
