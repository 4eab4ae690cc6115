package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exeunt/exeunt/sqldb"
)

// overdueMetric is the metric of package review that counts the reviews of a queue that are due.
const overdueMetric = "exeunt_review_queue_overdue"

// noteStart says what the server has found. It reads the queues, so it runs beside the
// first requests.
func (f *frontend) noteStart(ctx context.Context) {
	step, err := lastStep(ctx, f.db)
	objects, countErr := f.store.Count(ctx)
	queue, queueErr := f.collector.Status(ctx)
	if ctx.Err() != nil {
		return // it stops already
	}
	level := slog.LevelInfo
	attributes := []any{
		"version", f.config.Version, "database", string(f.db.Engine()), "schema", step, "revision", f.store.Revision(),
		"objects", objects, "reviews", queue.Depth, "overdue", queue.Overdue, "failing", queue.Failing, "paused", queue.Paused,
	}
	waiting, waitErr := waitingReviews(f.meters())
	if waiting != "" {
		attributes = append(attributes, "waiting", waiting)
	}
	if err := errors.Join(err, countErr, queueErr, waitErr); err != nil {
		level = slog.LevelWarn
		attributes = append(attributes, "error", err)
	}
	f.config.Logger.Log(ctx, level, "server started", attributes...)
}

// waitingReviews names the queues that have reviews which are due, with their numbers: those of the
// registry, the broker and the mesh too.
func waitingReviews(meters []prometheus.Collector) (string, error) {
	all := prometheus.NewRegistry()
	for _, meter := range meters {
		if err := all.Register(meter); err != nil {
			return "", err
		}
	}
	families, err := all.Gather()
	var due []string
	for _, family := range families {
		if family.GetName() != overdueMetric {
			continue
		}
		for _, m := range family.GetMetric() {
			if n := m.GetGauge().GetValue(); n > 0 {
				due = append(due, fmt.Sprintf("%s: %.0f", m.GetLabel()[0].GetValue(), n))
			}
		}
	}
	return strings.Join(due, ", "), err
}

// lastStep returns the number of the last migration that the database has.
func lastStep(ctx context.Context, db *sqldb.DB) (last int, err error) {
	steps, err := db.Steps(ctx)
	for _, s := range steps {
		if s.Done {
			last = s.Number
		}
	}
	return last, err
}

// noteStop says why the server stops.
func noteStop(ctx, storeCtx context.Context, log *slog.Logger) {
	switch {
	case storeCtx.Err() != nil:
		log.Error("server stops: the store stopped")
	case ctx.Err() != nil:
		log.Info("server stops: it got a signal")
	default:
		log.Error("server stops: one of its parts failed")
	}
}
