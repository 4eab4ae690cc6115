package gc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// A review's transaction blocks all other writers, so it must be short; but each
// one costs a commit, so it must not be too short. How many objects fit depends on
// the machine and the database.
const (
	targetTime  = 40 * time.Millisecond // of one transaction
	leastBudget = 100
	firstBudget = 500
	mostBudget  = 2000
)

// pace measures how many objects a transaction may change.
type pace struct {
	fixed int          // not 0: always this many
	each  atomic.Int64 // average nanoseconds per object; 0 if not known
}

func (p *pace) budget() int {
	if p.fixed > 0 {
		return p.fixed
	}
	each := p.each.Load()
	if each == 0 {
		return firstBudget
	}
	return min(max(int(int64(targetTime)/each), leastBudget), mostBudget)
}

// until returns when a transaction begins no more reviews. It is needed besides
// the budget: objects in a chain take much longer than those of one batch.
func (p *pace) until(begin time.Time) time.Time {
	if p.fixed > 0 {
		return time.Time{}
	}
	return begin.Add(targetTime)
}

// spent records the duration of a transaction. It ignores small ones, whose
// duration is mostly round trips.
func (p *pace) spent(objects int, took time.Duration) {
	if objects < leastBudget {
		return
	}
	each := max(int64(took)/int64(objects), 1)
	if before := p.each.Load(); before != 0 {
		each = (before + each) / 2 // one slow transaction changes the budget only by half
	}
	p.each.Store(each)
}

// gate keeps a webhook that does not work from taking the admitters' time: after a
// failure the kind is not asked about for a while, and then by one admitter.
type gate struct {
	now  func() time.Time
	mu   sync.Mutex
	down map[string]*outage // by kind; guarded by mu
}

type outage struct {
	failures int
	until    time.Time
	err      error
	asking   bool
}

// The first wait after a failure, and the longest.
const (
	gateFirst = time.Second
	gateMost  = 30 * time.Second
)

// enter returns the last error while the kind is not asked about.
func (g *gate) enter(kind string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	o := g.down[kind]
	switch {
	case o == nil:
		return nil
	case o.asking, g.now().Before(o.until):
		return o.err
	}
	o.asking = true
	return nil
}

// leave records how asking ended. A refusal is an answer: the webhook works.
func (g *gate) leave(kind string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !isOutage(err) {
		delete(g.down, kind)
		return
	}
	if g.down == nil {
		g.down = map[string]*outage{}
	}
	o := g.down[kind]
	if o == nil {
		o = &outage{}
		g.down[kind] = o
	}
	o.err, o.asking = err, false
	o.until = g.now().Add(min(gateFirst<<min(o.failures, 10), gateMost))
	o.failures++
}

// isOutage reports whether an error says that a webhook could not be asked.
func isOutage(err error) bool {
	return apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || errors.Is(err, context.DeadlineExceeded)
}

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

// Paused reports whether the collector is paused.
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
