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
	s, err := open(ctx, config)
	if err != nil {
		return Result{}, err
	}
	defer s.pool.close()
	text() // made once, and not on the clock
	m, err := startMeter(s.PID)
	if err != nil {
		return Result{}, err
	}
	t := s.createAll(ctx, nil)
	measure, err := m.stop("create", t)
	if err != nil {
		return Result{}, err
	}
	return Result{Workload: "create", Measures: []Measure{measure}}, ctx.Err()
}

// createAll makes every object once. An error that forgive accepts counts as
// success.
func (s *session) createAll(ctx context.Context, forgive func(error) bool) *tally {
	var next atomic.Int64
	return s.each(func(_ int, c client, t *tally) {
		for ctx.Err() == nil {
			n := int(next.Add(1)) - 1
			if n >= s.Objects {
				return
			}
			begin := time.Now()
			bytes, err := c.discard(ctx, http.MethodPost, s.path, "", writeHeader, configMap(n, s.Size))
			took := time.Since(begin)
			if err != nil && forgive != nil && forgive(err) {
				err = nil
			}
			t.count(took, bytes, err)
		}
	})
}
