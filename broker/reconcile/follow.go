package reconcile

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/review"
)

// Watcher tells of changes on the management cluster: crossplane.Cluster.
type Watcher interface {
	// Watch calls changed with the id of a resource when an object of the kind
	// that was made for it has changed, until ctx ends or the watch does.
	Watch(ctx context.Context, kind broker.ObjectType, changed func(broker.ProvisionedResourceID)) error
}

// Substrates knows what there is to watch: sqlbroker.Repository.
type Substrates interface {
	// KindsInUse lists the kinds that resources are built of.
	KindsInUse(ctx context.Context) ([]broker.ObjectType, error)
	// LookAgain makes a resource due that is under review.
	LookAgain(ctx context.Context, id broker.ProvisionedResourceID, due time.Time) error
}

// Follower has the loop look at a resource as soon as something of its substrate
// has changed: one watch for each kind in use. It decides nothing: what it
// misses, and what it cannot watch, the loop finds by looking.
//
// A round may itself change what is watched. So that two rounds that answer each
// other cannot spin, a resource is looked at for this at most every pollMin.
type Follower struct {
	Cluster    Watcher
	Substrates Substrates
	Wake       func() // the loop
	Logger     *slog.Logger

	mu   sync.Mutex
	last map[broker.ProvisionedResourceID]time.Time // when each is due; guarded by mu
}

const (
	// kindsEvery is how soon a kind is watched that was not in use before.
	kindsEvery = 2 * time.Second
	// rememberAtMost bounds the memory of what was looked at last.
	rememberAtMost = 10_000
)

// watchBackoff is how long after its end a watch is begun again: soon when it
// ended as watches do, later when it failed.
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
			f.Logger.Warn("which kinds are in use is not known", "error", err)
		}
		if err == nil {
			f.change(ctx, &running, watches, kinds)
		}
		if !pause(ctx, kindsEvery) {
			return nil
		}
	}
}

// change begins watches of kinds that came into use, and ends the others'.
func (f *Follower) change(ctx context.Context, running *sync.WaitGroup, watches map[broker.ObjectType]context.CancelFunc, kinds []broker.ObjectType) {
	used := map[broker.ObjectType]bool{}
	for _, kind := range kinds {
		used[kind] = true
		if watches[kind] != nil {
			continue
		}
		watching, cancel := context.WithCancel(ctx)
		watches[kind] = cancel
		running.Go(func() { f.watch(watching, kind) })
	}
	for kind, cancel := range watches {
		if !used[kind] {
			cancel()
			delete(watches, kind)
		}
	}
}

// watch keeps one kind watched. That it cannot be is said once, and not of the
// first failure: the cluster may be this server, which is only starting.
func (f *Follower) watch(ctx context.Context, kind broker.ObjectType) {
	for failures := 0; ; {
		err := f.Cluster.Watch(ctx, kind, func(id broker.ProvisionedResourceID) { f.changed(ctx, id) })
		failures++
		if err == nil {
			failures = 0
		}
		if failures == 2 && ctx.Err() == nil {
			f.Logger.Warn("a kind cannot be watched; its objects are looked at in intervals", "apiVersion", kind.APIVersion, "kind", kind.Kind, "error", err)
		}
		if !pause(ctx, watchBackoff.Delay(failures, 0)) {
			return
		}
	}
}

func (f *Follower) changed(ctx context.Context, id broker.ProvisionedResourceID) {
	if err := f.Substrates.LookAgain(ctx, id, f.due(id, time.Now())); err != nil {
		if ctx.Err() == nil {
			f.Logger.Warn("a change of a substrate is noticed later", "resource", id, "error", err)
		}
		return
	}
	f.Wake()
}

// due is when a resource that has changed is looked at.
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

// pause waits, and says whether the time passed before ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
