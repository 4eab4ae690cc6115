package collect

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/exeunt/exeunt/registry/registrytest"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// world is a registry at the level of its rows, with a collector.
type world struct {
	*registrytest.World
	c     *Collector
	clock dbtest.Clock // the collector's
}

type image = registrytest.Image

func each(t *testing.T, test func(w *world)) {
	t.Helper()
	t.Parallel()
	dbtest.EachParallel(t, func(t *testing.T, db *sqldb.DB) { test(newWorld(t, db, Options{})) })
}

func newWorld(t *testing.T, db *sqldb.DB, o Options) *world {
	t.Helper()
	w := &world{World: registrytest.New(t, db)}
	w.with(o)
	return w
}

// with replaces the collector of the world.
func (w *world) with(o Options) {
	w.Helper()
	o.Now, o.Logger = w.clock.Now, slog.New(slog.DiscardHandler)
	var err error
	if w.c, err = New(w.DB, w.Store, o); err != nil {
		w.Fatal(err)
	}
	if err := w.c.configure(w.Context()); err != nil {
		w.Fatal(err)
	}
}

// ended waits for the end of a Run, and returns its error.
func (w *world) ended(result <-chan error) error {
	w.Helper()
	select {
	case err := <-result:
		return err
	case <-time.After(dbtest.Patience):
		w.Fatalf("Run has not ended within %s", dbtest.Patience)
		return nil
	}
}

// settle moves the clock and runs the collector until it is idle.
func (w *world) settle(after time.Duration) {
	w.Helper()
	w.clock.Advance(after)
	for range 50 {
		turn, err := w.c.RunOne(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		if turn.Manifests.Failed+turn.Blobs.Failed+turn.Unlinks.Failed > 0 {
			w.Fatalf("reviews failed: %+v", turn)
		}
		if turn.Idle() {
			return
		}
	}
	w.Fatal("the collector does not become idle")
}

// drain settles day after day, until the queues are empty.
func (w *world) drain() {
	w.Helper()
	for range 20 {
		w.settle(25 * time.Hour)
		stats, err := w.c.Stats(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		if stats.Manifests.Depth+stats.Blobs.Depth+stats.Unlinks.Depth+stats.Abandoned == 0 {
			w.Check()
			return
		}
	}
	w.Fatal("the queues do not empty")
}

// delays sets the delays of events.
func (w *world) delays(delays map[string]time.Duration) {
	w.Helper()
	for event, after := range delays {
		if err := w.c.SetReviewAfter(context.WithoutCancel(w.Context()), event, after); err != nil {
			w.Fatal(err)
		}
	}
}
