package bench

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"
)

// RunCreate creates the objects as fast as the clients can. An object that
// already exists counts as an error.
func RunCreate(ctx context.Context, config Config) (Result, error) {
	text() // generated once, before the clock starts
	return runOnEach(ctx, config, "create", (*session).create)
}

func (s *session) create(ctx context.Context, c client, n int) (int64, error) {
	return c.discard(ctx, http.MethodPost, s.path, "", writeHeader, configMap(n, s.Size))
}

// runOnEach calls do once for every object. All workloads but those that make objects
// themselves seed them first.
func runOnEach(ctx context.Context, config Config, name string, do func(*session, context.Context, client, int) (int64, error)) (Result, error) {
	s, err := open(ctx, config)
	if err != nil {
		return Result{}, err
	}
	defer s.pool.close()
	if name != "create" && name != "finalize" {
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

// onEach calls do once for every object, with all clients.
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
