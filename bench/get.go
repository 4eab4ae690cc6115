package bench

import (
	"context"
	"math/rand/v2"
	"net/http"
	"time"
)

// RunGet reads random objects for Duration.
func RunGet(ctx context.Context, config Config) (Result, error) {
	s, err := openSeeded(ctx, config)
	if err != nil {
		return Result{}, err
	}
	defer s.pool.close()
	paths := make([]string, s.Objects)
	for i := range paths {
		paths[i] = s.path + "/" + objectName(i)
	}
	m, err := startMeter(s.PID)
	if err != nil {
		return Result{}, err
	}
	end := m.begin.Add(s.Duration)
	t := s.each(func(worker int, c client, t *tally) {
		choice := rand.New(rand.NewPCG(uint64(worker), 1))
		for begin := time.Now(); begin.Before(end) && ctx.Err() == nil; {
			bytes, err := c.discard(ctx, http.MethodGet, paths[choice.IntN(len(paths))], "", plainHeader, nil)
			done := time.Now()
			t.count(done.Sub(begin), bytes, err)
			begin = done
		}
	})
	measure, err := m.stop("get", t)
	if err != nil {
		return Result{}, err
	}
	return Result{Workload: "get", Measures: []Measure{measure}}, ctx.Err()
}
