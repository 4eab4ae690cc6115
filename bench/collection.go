package bench

import (
	"context"
	"net/http"
	"time"
)

// RunCollection deletes all objects by one request. Each object counts as an operation.
func RunCollection(ctx context.Context, config Config) (Result, error) {
	s, err := openSeeded(ctx, config)
	if err != nil {
		return Result{}, err
	}
	defer s.pool.close()
	m, err := startMeter(s.PID)
	if err != nil {
		return Result{}, err
	}
	begin := time.Now()
	size, err := s.pool.client(0).discard(ctx, http.MethodDelete, s.path, "labelSelector=app%3Dbench", plainHeader, nil)
	var t tally
	t.count(time.Since(begin), size, err)
	if err == nil {
		t.ops = int64(s.Objects)
	}
	measure, err := m.stop("delete collection", &t)
	if err != nil {
		return Result{}, err
	}
	return Result{Workload: "collection", Measures: []Measure{measure}}, ctx.Err()
}
