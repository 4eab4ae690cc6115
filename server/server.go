// Package server assembles Exeunt: database, store, kinds, API, listeners.
// Start reading here: Run is the whole program in order. It opens the database,
// assembles what stands on it (parts.go), opens what the world sees (open), and
// runs all of that until it is told to stop.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/api"
	"github.com/exeunt/exeunt/api/openapi"
	"github.com/exeunt/exeunt/kind/definition"
	"github.com/exeunt/exeunt/sqldb"
)

// shutdownGrace is how long requests may take to finish when the server stops.
const shutdownGrace = 10 * time.Second

// Run serves until the context ends, then stops in order: watches are told,
// requests finish, the last writes are committed.
func Run(ctx context.Context, c Config) error {
	c = c.withDefaults()
	quietLibraries(ctx, c.Logger)
	collectSooner()
	defer forgetStart(c.Logger)()
	unlock, err := lockData(c.Data, c.Logger)
	if err != nil {
		return err
	}
	defer unlock()
	db, err := sqldb.Open(ctx, c.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	st, err := openStore(ctx, c, db)
	if err != nil {
		return err
	}
	defer st.Close()
	p, err := assemble(c, db, st)
	if err != nil {
		return err
	}

	// The store must outlive the API: requests that are being answered while
	// the server stops still write.
	storeCtx, stopStore := context.WithCancel(context.WithoutCancel(ctx))
	stores, storeCtx := errgroup.WithContext(storeCtx)
	stores.Go(func() error { return st.Run(storeCtx) })
	err = serve(ctx, storeCtx, c, p)
	stopStore()
	return errors.Join(err, stores.Wait())
}

// serve opens and runs everything that needs a running store. It ends when ctx
// does or when the store has failed.
func serve(ctx, storeCtx context.Context, c Config, p parts) error {
	f, err := open(ctx, c, p)
	if err != nil {
		return err
	}
	defer f.images.close()
	f.api = f.newAPI(storeCtx)
	return f.run(ctx, storeCtx)
}

// front is the server as the world sees it: addresses, and what answers there
// or works on its own.
type front struct {
	parts
	config      Config
	controller  *definition.Controller
	images      *registryServer // nil: no registry
	provisioner *provisioner
	identity    *access.Identity
	listener    net.Listener
	api         *api.API
}

// open reads the stored definitions, makes the namespaces that everybody
// expects, and opens the addresses. Nothing is answered there yet.
func open(ctx context.Context, c Config, p parts) (f *front, err error) {
	f = &front{parts: p, config: c, controller: definition.New(p.store, p.kinds, p.definitions, c.Logger)}
	if err := f.controller.Load(ctx); err != nil {
		return nil, err
	}
	if err := ensureNamespaces(ctx, p.store, p.kinds); err != nil {
		return nil, err
	}
	if f.images, err = openRegistry(ctx, c, p); err != nil {
		return nil, err
	}
	if f.listener, f.identity, err = listen(c); err != nil {
		f.images.close()
		return nil, err
	}
	if f.provisioner, err = openBroker(c, p, f.identity, f.listener); err != nil {
		f.images.close()
		return nil, errors.Join(err, f.listener.Close())
	}
	return f, nil
}

func (f *front) newAPI(storeCtx context.Context) *api.API {
	queues := []prometheus.Collector{f.collector.Engine(), f.nodes.Engine()}
	meters := newMetrics(f.store, slices.Concat(f.images.meters(), f.provisioner.meters(), queues)...)
	return api.New(api.Config{
		Store: f.store, Kinds: f.kinds, Access: &access.Authenticator{}, OpenAPI: openapi.New(f.kinds, f.config.Version),
		Metrics: meters.handler(), Observer: meters.observe, Extra: f.extra(f.images), Open: f.nodes.NodeHandler(),
		MaxCascade: f.config.MaxCascade, Foresee: f.questions.Held,
		Logger: f.config.Logger, Version: f.config.Version,
		Ready: func() error {
			ctx, cancel := context.WithTimeout(storeCtx, 5*time.Second)
			defer cancel()
			return f.store.Ping(ctx)
		},
	})
}

// run answers and works until ctx ends, the store ends or one of the tasks
// fails; then all of them end.
func (f *front) run(ctx, storeCtx context.Context) error {
	web := newWeb(boundBodies(apiBodies, f.api), f.identity, f.config)
	web.MaxHeaderBytes = 1 << 20
	web.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 1000}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, task := range f.tasks() {
		group.Go(func() error { return task(groupCtx) })
	}
	group.Go(func() error {
		if err := web.ServeTLS(stallListener{f.listener, f.config.StallTimeout}, "", ""); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		select {
		case <-groupCtx.Done():
		case <-storeCtx.Done():
			return errors.New("the store stopped")
		}
		return shutdown(web, f.api, f.config.Logger)
	})
	announce(f.config, f.listener, f.images.url())
	return group.Wait()
}

// tasks are what works beside the API, each until its context ends.
func (f *front) tasks() []func(context.Context) error {
	tasks := []func(context.Context) error{
		f.controller.Run,
		f.nodes.Run,
		f.provisioner.run,
		func(ctx context.Context) error { return f.images.run(ctx, f.identity) },
		f.images.keep,
		f.images.collect,
		func(ctx context.Context) error { return keepNamespaces(ctx, f.store, f.kinds, f.config.Logger) },
		newRenewal(f.config, f.identity, f.listener).run,
	}
	if !f.config.NoCollector {
		tasks = append(tasks, f.collector.Run)
	}
	return tasks
}

// newWeb makes a server with the limits that keep slow and idle clients from
// holding it.
func newWeb(handler http.Handler, identity *access.Identity, c Config) *http.Server {
	return &http.Server{
		Handler: stallHandler(handler, c.StallTimeout), TLSConfig: identity.TLSConfig(),
		ReadHeaderTimeout: 30 * time.Second, IdleTimeout: 3 * time.Minute,
		ErrorLog: slog.NewLogLogger(c.Logger.Handler(), slog.LevelDebug),
	}
}

// shutdown ends watches first: they would hold the server up to its grace. Half of
// the grace is theirs, so that requests that write have the other half. Clients
// that do not read cannot make it longer: after the grace every connection is
// closed.
func shutdown(web *http.Server, a *api.API, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancel()
	half, cancelHalf := context.WithTimeout(ctx, shutdownGrace/2)
	defer cancelHalf()
	if !a.Close(half) {
		log.Warn("watches did not end: their clients do not read", "waited", shutdownGrace/2)
	}
	err := web.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		log.Warn("requests did not finish and are cut off", "grace", shutdownGrace)
		err = web.Close()
	}
	if err != nil {
		return fmt.Errorf("stop the API: %w", err)
	}
	return nil
}

// quietLibraries sends what the Kubernetes libraries log to our log, for those
// who debug. What matters of it reaches callers, or us as an error.
func quietLibraries(ctx context.Context, log *slog.Logger) {
	if log.Enabled(ctx, slog.LevelDebug) {
		klog.SetSlogLogger(log.With("from", "kubernetes libraries"))
		return
	}
	klog.SetLogger(logr.Discard())
}
