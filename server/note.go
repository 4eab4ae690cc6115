package server

import (
	"context"
	"errors"
	"log/slog"

	"github.com/exeunt/exeunt/sqldb"
)

// noteStart says what the server has found. It reads the queue of the collector, so it
// runs beside the first requests.
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
	if err := errors.Join(err, countErr, queueErr); err != nil {
		level = slog.LevelWarn
		attributes = append(attributes, "error", err)
	}
	f.config.Logger.Log(ctx, level, "server started", attributes...)
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
