// Package cache answers for the upstream registries of RegistryCaches: it is their client, and keeps the objects'
// status. It promises:
//
//   - A password goes only to the host that its Secret names, and to the token service that this host names. No
//     redirect takes credentials to another host, and none leads from https to http.
//   - An upstream can hold a bounded number of requests, each for a bounded time, whatever it sends.
//   - Only services that other machines reach are asked, unless the upstream itself is on this machine.
//
// It stores nothing: package registry does (registry/upstream.go), and checks what comes.
package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/custom"
	"github.com/exeunt/exeunt/kind/objects"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/registry"
	v1 "github.com/exeunt/exeunt/registry/v1"
	"github.com/exeunt/exeunt/store"
)

// Options are the settings of Caches. Zero values have a default.
type Options struct {
	// Secret returns the data of a Secret.
	Secret func(ctx context.Context, namespace, name string) (map[string][]byte, error)
	// Patience is how long an upstream may take to answer, and then for each 64 KiB. Default 30 seconds.
	Patience time.Duration
	// Every is how often the status is written. Default ten seconds.
	Every time.Duration
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// Logger logs failures. Default slog.Default.
	Logger *slog.Logger
}

// follow is how old the known RegistryCaches may be.
const follow = time.Second

// Caches knows the RegistryCaches. It is safe for concurrent use.
type Caches struct {
	store   *store.Store
	kind    *kind.Kind
	writer  objects.Writer
	opts    Options
	counted *prometheus.CounterVec

	mu   sync.Mutex
	all  map[string]*upstream // by name; replaced; guarded by mu
	read time.Time            // when; guarded by mu
}

// New makes Caches. It does no I/O.
func New(st *store.Store, o Options) (*Caches, error) {
	o.Patience, o.Every = cmp.Or(o.Patience, 30*time.Second), cmp.Or(o.Every, 10*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	k, err := custom.BuiltIn(definition)
	if err != nil {
		return nil, fmt.Errorf("registry caches: %w", err)
	}
	k.Versions[0].Strategy = custom.Checked{Strategy: k.Versions[0].Strategy, Check: validate}
	c := &Caches{store: st, kind: k, opts: o}
	c.writer = objects.Writer{Store: st, Kinds: kind.NewRegistry([]*kind.Kind{k}), Actor: "system:registry:cache"}
	c.counted = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "exeunt_registry_cache_requests_total", Help: "Requests for manifests and blobs of cached repositories, by RegistryCache and result: hit, miss or error.",
	}, []string{"cache", "result"})
	return c, nil
}

// Kind is RegistryCache.
func (c *Caches) Kind() *kind.Kind { return c.kind }

// Meters are the metrics.
func (c *Caches) Meters() []prometheus.Collector { return []prometheus.Collector{c.counted} }

// Of is registry.Config.Upstream: the first component of a path names its RegistryCache.
func (c *Caches) Of(ctx context.Context, repository string) (registry.Upstream, error) {
	name, _, deeper := strings.Cut(repository, "/")
	if !deeper {
		return nil, nil
	}
	all, err := c.known(ctx)
	if u := all[name]; u != nil {
		return u, nil
	}
	return nil, err
}

// known returns the RegistryCaches, as they were a second ago or later. While the store does not answer, they are as before.
func (c *Caches) known(ctx context.Context) (map[string]*upstream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.opts.Now()
	if c.all != nil && now.Sub(c.read).Abs() < follow {
		return c.all, nil
	}
	all, err := c.list(ctx)
	if err != nil && c.all == nil {
		return nil, fmt.Errorf("list registry caches: %w", err)
	}
	if c.read = now; err == nil {
		c.all = all
	}
	return c.all, nil
}

func (c *Caches) list(ctx context.Context) (map[string]*upstream, error) {
	list, err := c.store.List(ctx, store.ListRequest{Kind: c.kind.Storage})
	if err != nil {
		return nil, err
	}
	all := map[string]*upstream{}
	for list.Next() {
		s, err := parse(list.Object().Body)
		if err != nil { // one that cannot be read must not stop the others, nor the registry
			c.opts.Logger.Warn("registry cache: it cannot be read", "cache", list.Object().Name, "error", err)
			continue
		}
		if all[s.name] = c.all[s.name]; all[s.name] == nil || all[s.name].version != s.version {
			all[s.name] = newUpstream(s, &c.opts, c.counted)
		}
	}
	return all, list.Err()
}

// report is what the status of a RegistryCache says, and this replica has not written yet.
type report struct {
	hits, misses int64
	failure      string    // the last error
	down         string    // why the upstream does not answer; empty: it does
	since        time.Time // zero: not known yet
}

// reach notes whether the upstream answers; why is empty if it does. The caller holds mu.
func (u *upstream) reach(why string) {
	if u.since.IsZero() || (u.down == "") != (why == "") {
		u.since = u.opts.Now()
	}
	u.down = ""
	if why != "" {
		u.failed(why)
	}
	u.down = why
}

// failed notes an error, unless the upstream does not answer: reach has noted why. The caller holds mu.
func (u *upstream) failed(why string) {
	if u.down != "" {
		return
	}
	u.failure = u.opts.Now().UTC().Format(time.RFC3339) + " " + why[:min(len(why), 500)]
}

// Served is part of registry.Upstream.
func (u *upstream) Served(fetched bool, err error) {
	result := "hit"
	u.mu.Lock()
	defer u.mu.Unlock()
	var refused *registry.Error
	switch {
	case err != nil:
		result = "error"
		if !errors.As(err, &refused) || !refused.Final || refused.Code == registry.Denied {
			u.failed(err.Error())
		}
	case fetched:
		result = "miss"
		u.misses++
	default:
		u.hits++
	}
	u.counted.WithLabelValues(u.name, result).Inc()
}

// Run writes the status until ctx ends.
func (c *Caches) Run(ctx context.Context) error {
	for task.Sleep(ctx, c.opts.Every) {
		if err := c.RunOne(ctx); err != nil && ctx.Err() == nil {
			c.opts.Logger.Warn("registry cache: status", "error", err)
		}
	}
	return nil
}

// RunOne looks whether upstreams answer that have not yet, or not lately, and writes what has changed.
func (c *Caches) RunOne(ctx context.Context) error {
	all, err := c.known(ctx)
	errs := []error{err}
	for _, u := range all {
		u.mu.Lock()
		ask := u.since.IsZero() || u.down != ""
		u.mu.Unlock()
		if ask {
			if answer, err := u.send(ctx, http.MethodGet, registry.Request{Kind: registry.Ping}); err == nil {
				answer.Body.Close()
			} else {
				u.mu.Lock()
				u.failed(err.Error())
				u.mu.Unlock()
			}
		}
		err := c.write(ctx, u)
		if err != nil && !object.Is(err, object.Conflict) && !object.Is(err, object.NotFound) {
			errs = append(errs, fmt.Errorf("%s: %w", u.name, err))
		}
	}
	return errors.Join(errs...)
}

// write adds to the status what this replica has counted.
func (c *Caches) write(ctx context.Context, u *upstream) error {
	u.mu.Lock()
	r := u.report
	u.mu.Unlock()
	err := c.writer.SetStatus(ctx, v1.GroupVersion.WithResource(c.kind.Plural), "", u.name, func(status map[string]any) error {
		status["hits"], status["misses"] = objects.Figure(status, "hits")+r.hits, objects.Figure(status, "misses")+r.misses
		if r.failure != "" {
			status["lastError"] = r.failure
		}
		condition := map[string]any{"type": "Reachable", "status": "True", "reason": "Answers", "message": "", "lastTransitionTime": r.since.UTC().Format(time.RFC3339)}
		if r.down != "" {
			condition["status"], condition["reason"], condition["message"] = "False", "NoAnswer", r.down
		}
		if list, _ := status["conditions"].([]any); len(list) == 1 {
			if was, _ := list[0].(map[string]any); was["status"] == condition["status"] { // another replica, or an earlier process, has seen it
				return nil
			}
		}
		status["conditions"] = []any{condition}
		return nil
	})
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.hits, u.misses = u.hits-r.hits, u.misses-r.misses
	return nil
}
