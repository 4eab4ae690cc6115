// Package gc is the object collector: what loses its last owner leaves, what
// is to be orphaned is let go, what is deleted in the foreground waits for its
// dependents, and a terminating namespace is emptied, pods first.
//
// It keeps spec 1's parts and changes their medium. The propagator is the
// triggers of schema/…/0002_collect.sql: they put under review, in the
// transaction that made it so, an owner that is gone, an owner that is waiting
// for its dependents, and an object whose owner is in another namespace. The
// dirty queue is the table gc_object_reviews, shared by all replicas. The
// scanner ([Collector.Scan]) is an anti-join. The garbage processor and the
// two finalizers are the reviewer in review.go.
//
// A review decides and acts in one write transaction of the store, which holds
// the lock on the revision: an owner that appears, goes or is switched at the
// last moment is seen, or comes after. There is no graph in memory, and no
// kind is consulted but for its rules of deletion, so one broken definition
// stops nothing. The decisions are pure: decide.go.
package gc

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// Options are what a Collector can be given. Zero values are the defaults.
type Options struct {
	Logger *slog.Logger
	Now    func() time.Time
	// OrphanWait bounds how long orphaning waits for a controller to see the
	// deletion (status.observedGeneration). Default DefaultOrphanWait; negative:
	// it does not wait.
	OrphanWait time.Duration
	// Budget bounds the objects that one transaction changes. Default: as many
	// as take about 40 ms (see pace.go).
	Budget int
	// Poll is how often the queue is looked at unasked. Default 5 seconds.
	Poll time.Duration
}

// DefaultOrphanWait is long enough for a controller that runs, and short enough
// for a person who waits where none does.
const DefaultOrphanWait = 10 * time.Second

// Collector reviews what deletions may have made garbage.
type Collector struct {
	db     *sqldb.DB
	store  *store.Store
	kinds  *kind.Registry
	engine *review.Engine
	opts   Options
	pace   pace
	sql    statements

	mu       sync.Mutex
	paused   bool      // guarded by mu
	pausedAt time.Time // when paused was read; guarded by mu

	told map[string]time.Time // when the cascades under way were told of last; guarded by mu
}

// queue is the dirty queue. A review takes a fraction of a second; the lease is
// how long the cascades of a replica stand still whose machine has vanished.
var queue = review.Queue{Name: "objects", Table: "gc_object_reviews", Key: "uid", Batch: 100, Lease: 10 * time.Second}

const (
	// scanAfter is how long after its start, or after a kind is added, a collector
	// scans; scanRetry how long after a scan that failed.
	scanAfter = 2 * time.Second
	scanRetry = 10 * time.Second
)

// New makes a collector and has the store wake it. Call it before store.Run.
func New(db *sqldb.DB, st *store.Store, kinds *kind.Registry, o Options) (*Collector, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.OrphanWait == 0 {
		o.OrphanWait = DefaultOrphanWait
	}
	c := &Collector{db: db, store: st, kinds: kinds, opts: o, sql: newStatements(db.Engine()), told: map[string]time.Time{}}
	c.pace.fixed = o.Budget
	q := queue
	q.Idle = o.Poll
	var err error
	c.engine, err = review.New(db, q, c, st.Transact, review.Options{
		Paused: c.Paused,
		Now:    o.Now,
		Logger: o.Logger,
	})
	if err != nil {
		return nil, err
	}
	st.OnChange(c.notice)
	return c, nil
}

// Run reviews until the context ends, and scans meanwhile: after the start, and
// when a kind is added.
func (c *Collector) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var scanning sync.WaitGroup
	scanning.Go(func() { c.scanWhenDue(ctx) })
	defer scanning.Wait()
	defer cancel()
	return c.engine.Run(ctx)
}

// scanWhenDue scans some seconds after the start, and after a kind is served that
// was not: dependents of its objects may have waited for that. It leaves the
// first moments to clients that wait for the server: the triggers have put
// everything under review that the first scan would find.
func (c *Collector) scanWhenDue(ctx context.Context) {
	kinds, changed := c.kinds.Changed()
	for due := true; ; {
		if due && !c.scanSoon(ctx) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		before := kinds
		kinds, changed = c.kinds.Changed()
		due = serves(kinds, before)
	}
}

// scanSoon scans after scanAfter, and again until it succeeds. Kinds that are
// added meanwhile are part of it.
func (c *Collector) scanSoon(ctx context.Context) (goOn bool) {
	for wait := scanAfter; ; wait = scanRetry {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(wait):
		}
		_, err := c.Scan(ctx)
		if err == nil {
			return true
		}
		if ctx.Err() == nil {
			c.opts.Logger.Warn("scan for objects without owners failed", "error", err, "retry", scanRetry)
		}
	}
}

// serves says whether there is a kind that there was not before.
func serves(kinds, before *kind.Snapshot) bool {
	return slices.ContainsFunc(kinds.Kinds, func(k *kind.Kind) bool {
		_, known := before.OfGroupKind(schema.GroupKind{Group: k.Group, Kind: k.Name})
		return !known
	})
}

// RunOne reviews at most one batch that is due: for tests.
func (c *Collector) RunOne(ctx context.Context) (review.Result, error) { return c.engine.RunOne(ctx) }

// Engine shows the queue, for metrics and reports.
func (c *Collector) Engine() *review.Engine { return c.engine }

var (
	deletionMark = []byte(`"deletionTimestamp"`)
	ownersMark   = []byte(`"ownerReferences"`)
)

// notice wakes the engine after changes, of any replica, that can have put
// something under review. Most cannot, and asking the queue costs a query.
func (c *Collector) notice(events []*store.Event) {
	if len(events) == 0 { // nobody knows what changed
		c.engine.Wake()
		return
	}
	for _, e := range events {
		if e.Type == store.Removed || bytes.Contains(e.Object.Body, deletionMark) || bytes.Contains(e.Object.Body, ownersMark) {
			c.engine.Wake()
			return
		}
	}
}
