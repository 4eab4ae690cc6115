package reconcile

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/review"
)

// Watcher watches the management cluster: crossplane.Cluster.
type Watcher interface {
	// Watch calls changed with the id of a resource when an object of the kind
	// that was made for it has changed, until ctx or the watch ends.
	Watch(ctx context.Context, kind broker.ObjectType, changed func(broker.ProvisionedResourceID)) error
}

// Substrates knows which kinds to watch: sqlbroker.Repository.
type Substrates interface {
	// KindsInUse lists the kinds of the resources' substrates.
	KindsInUse(ctx context.Context) ([]broker.ObjectType, error)
	// MakeDue makes a resource due, if it is under review.
	MakeDue(ctx context.Context, id broker.ProvisionedResourceID, due time.Time) error
}

// Follower makes a resource due as soon as its substrate changes: one watch for
// each kind in use. It decides nothing: the loop finds by polling what a watch
// misses.
//
// A round may itself change what is watched. To stop two rounds from triggering
// each other in a tight loop, the Follower makes a resource due at most once
// per pollMin.
type Follower struct {
	Cluster    Watcher
	Substrates Substrates
	Wake       func() // wakes the loop
	Logger     *slog.Logger

	mu   sync.Mutex
	last map[broker.ProvisionedResourceID]time.Time // when each resource is due; guarded by mu
}

const (
	// kindsEvery is the poll interval for kinds that come into use.
	kindsEvery = 2 * time.Second
	// rememberAtMost bounds the size of last.
	rememberAtMost = 10_000
)

// watchBackoff is the pause before a watch starts again: short after a normal
// end, longer after failures.
var watchBackoff = review.Backoff{Base: time.Second, Cap: 30 * time.Second}

// Run follows until ctx ends, and then returns nil.
func (f *Follower) Run(ctx context.Context) error {
	watches := map[broker.ObjectType]context.CancelFunc{}
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		kinds, err := f.Substrates.KindsInUse(ctx)
		if err != nil && ctx.Err() == nil {
			f.Logger.Warn("cannot read which kinds to watch; retrying", "error", err)
		}
		if err == nil {
			f.change(ctx, &running, watches, kinds)
		}
		if !task.Sleep(ctx, kindsEvery) {
			return nil
		}
	}
}

// change starts watches of kinds that came into use, and stops those of kinds
// that are not in use any more.
func (f *Follower) change(ctx context.Context, running *sync.WaitGroup, watches map[broker.ObjectType]context.CancelFunc, kinds []broker.ObjectType) {
	used := map[broker.ObjectType]bool{}
	for _, kind := range kinds {
		used[kind] = true
		if watches[kind] != nil {
			continue
		}
		watching, cancel := context.WithCancel(ctx)
		watches[kind] = cancel
		watch := task.Loop("broker-watch", func(ctx context.Context) { f.watch(ctx, kind) })
		running.Go(func() { _ = task.Run(watching, f.Logger, watch) }) // it cannot fail
	}
	for kind, cancel := range watches {
		if !used[kind] {
			cancel()
			delete(watches, kind)
		}
	}
}

// watch keeps one kind watched. It logs a failure once, and not the first: the
// cluster may be this server, which is still starting.
func (f *Follower) watch(ctx context.Context, kind broker.ObjectType) {
	for failures := 0; ; {
		err := f.Cluster.Watch(ctx, kind, func(id broker.ProvisionedResourceID) { f.changed(ctx, id) })
		failures++
		if err == nil {
			failures = 0
		}
		if failures == 2 && ctx.Err() == nil {
			f.Logger.Warn("cannot watch a kind; polling its objects instead", "apiVersion", kind.APIVersion, "kind", kind.Kind, "error", err)
		}
		if !task.Sleep(ctx, watchBackoff.Delay(failures, 0)) {
			return
		}
	}
}

func (f *Follower) changed(ctx context.Context, id broker.ProvisionedResourceID) {
	if err := f.Substrates.MakeDue(ctx, id, f.due(id, time.Now())); err != nil {
		if ctx.Err() == nil {
			f.Logger.Warn("cannot make a changed resource due; polling finds the change later", "resource", id, "error", err)
		}
		return
	}
	f.Wake()
}

// due is when the loop looks at a resource that has changed.
func (f *Follower) due(id broker.ProvisionedResourceID, now time.Time) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == nil || len(f.last) >= rememberAtMost {
		f.last = map[broker.ProvisionedResourceID]time.Time{}
	}
	due := now
	if earliest := f.last[id].Add(pollMin); earliest.After(now) {
		due = earliest
	}
	f.last[id] = due
	return due
}
