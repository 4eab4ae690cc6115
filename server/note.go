package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/exeunt/exeunt/sqldb"
)

// noteStart says what the server has found. It reads the queues, so it runs beside the
// first requests.
func (s *server) noteStart(ctx context.Context) {
	step, err := lastStep(ctx, s.db)
	objects, countErr := s.store.Count(ctx)
	status := s.status(ctx)
	queue := status.Collector
	if ctx.Err() != nil {
		return // it stops already
	}
	level := slog.LevelInfo
	attributes := []any{
		"version", s.config.Version, "database", string(s.db.Engine()), "schema", step, "revision", s.store.Revision(),
		"objects", objects, "reviews", queue.Depth, "overdue", queue.Overdue, "failing", queue.Failing, "paused", queue.Paused,
	}
	if waiting := waitingReviews(status.Queues); waiting != "" {
		attributes = append(attributes, "waiting", waiting)
	}
	if err := errors.Join(err, countErr); err != nil || len(status.Problems) > 0 {
		level = slog.LevelWarn
		attributes = append(attributes, "error", err, "problems", strings.Join(status.Problems, "; "))
	}
	s.config.Logger.Log(ctx, level, "server started", attributes...)
}

// waitingReviews names the queues that have reviews which are due, with their numbers: those of the
// registry, the broker and the mesh too.
func waitingReviews(queues []Queue) string {
	var due []string
	for _, q := range queues {
		if q.Overdue > 0 {
			due = append(due, fmt.Sprintf("%s: %d", q.Name, q.Overdue))
		}
	}
	return strings.Join(due, ", ")
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
		log.Error("shutting down: the store stopped")
	case ctx.Err() != nil:
		log.Info("shutting down: signal received")
	default:
		log.Error("shutting down: a part failed")
	}
}
