package gc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// pauseCached is how long a replica caches the switch.
const pauseCached = 500 * time.Millisecond

// Pause stops the collector of every replica, and keeps it stopped over
// restarts, until Resume. Triggers still enqueue reviews.
func (c *Collector) Pause(ctx context.Context, reason string) error {
	return c.setPaused(ctx, true, reason)
}

// Resume undoes Pause.
func (c *Collector) Resume(ctx context.Context) error { return c.setPaused(ctx, false, "") }

func (c *Collector) setPaused(ctx context.Context, paused bool, reason string) error {
	err := c.store.Transact(ctx, func(tx *store.Tx) error {
		var b sqldb.Batch
		b.Exec(writePaused, paused, reason)
		return tx.Send(ctx, &b)
	})
	if err != nil {
		return fmt.Errorf("switch the collector: %w", err)
	}
	c.mu.Lock()
	c.pausedAt = time.Time{}
	c.mu.Unlock()
	c.engine.Wake()
	return nil
}

// Paused says whether the collector is paused.
func (c *Collector) Paused(ctx context.Context) (bool, error) {
	c.mu.Lock()
	paused, recent := c.paused, time.Since(c.pausedAt) < pauseCached
	c.mu.Unlock()
	if recent {
		return paused, nil
	}
	paused, _, err := ReadPaused(ctx, c.store.Reader())
	if err != nil {
		return false, err
	}
	c.mu.Lock()
	c.paused, c.pausedAt = paused, time.Now()
	c.mu.Unlock()
	return paused, nil
}

// ReadPaused reads the switch, and why the collector is paused.
func ReadPaused(ctx context.Context, r *store.Reader) (paused bool, reason string, err error) {
	found, err := sqldb.First(ctx, r, []any{&paused, &reason}, readPaused)
	if err == nil && !found {
		err = errors.New("the table has no row")
	}
	if err != nil {
		return false, "", fmt.Errorf("read the collector's switch: %w", err)
	}
	return paused, reason, nil
}
