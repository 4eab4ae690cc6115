// Package server assembles Exeunt: database, store, kinds, API, listeners.
// Start reading here: Run is the whole program in order. It opens the database,
// builds the components that use it (parts.go), opens the listeners (open), and
// runs all of them until the context ends.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/access/auditlog"
	"github.com/exeunt/exeunt/access/directory"
	"github.com/exeunt/exeunt/access/policy"
	"github.com/exeunt/exeunt/access/serviceaccount"
	"github.com/exeunt/exeunt/admission"
	"github.com/exeunt/exeunt/api"
	"github.com/exeunt/exeunt/api/openapi"
	"github.com/exeunt/exeunt/internal/inflight"
	"github.com/exeunt/exeunt/internal/tracing"
	"github.com/exeunt/exeunt/internal/tracing/otlp"
	"github.com/exeunt/exeunt/kind/definition"
	"github.com/exeunt/exeunt/kind/migration"
	"github.com/exeunt/exeunt/sqldb"
)

// shutdownGrace is how long requests may take to finish when the server stops.
const shutdownGrace = 10 * time.Second

// lowerGCPercent lowers GOGC from 100 to 50: less memory for a little more CPU. The
// live heap is small compared to the garbage that requests make. The GOGC
// environment variable, if set, has priority.
func lowerGCPercent() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
}

// Run serves until the context ends, then stops in order: watches end, requests
// finish, the last writes are committed.
func Run(ctx context.Context, c Config) error {
	if err := Check(c); err != nil {
		return err
	}
	c, err := takeSockets(c.withDefaults())
	if err != nil {
		return err
	}
	defer c.sockets.close()
	redirectKlog(ctx, c.Logger)
	lowerGCPercent()
	unlock, err := lockData(c.Data, c.Logger)
	if err != nil {
		return err
	}
	defer unlock()
	if err := checkRestored(c.Data); err != nil {
		return err
	}
	db, err := sqldb.OpenWithin(ctx, c.Database, sqldb.Limits{Statement: c.StatementTimeout, Lock: c.LockTimeout, IdleTransaction: c.IdleTransactionTimeout})
	if err != nil {
		return err
	}
	defer db.Close()
	st, err := openStore(ctx, c, db)
	if err != nil {
		return err
	}
	defer st.Close()
	if c.OTLPEndpoint != "" {
		exporter, err := otlp.New(ctx, c.OTLPEndpoint, c.Version, c.Logger)
		if err != nil {
			return err
		}
		defer func() { closeTraces(exporter, c.Logger) }()
		c.tracer = exporter.Tracer()
		ctx = tracing.With(ctx, c.tracer)
	}
	noteRestore(ctx, db, st.Revision(), c.Logger)
	p, err := assemble(c, db, st)
	if err != nil {
		return err
	}

	// The store must outlive the API: requests that finish during the shutdown
	// still write.
	storeCtx, stopStore := context.WithCancel(context.WithoutCancel(ctx))
	stores, storeCtx := errgroup.WithContext(storeCtx)
	stores.Go(func() error { return st.Run(storeCtx) })
	err = serve(ctx, storeCtx, c, p)
	stopStore()
	return errors.Join(err, stores.Wait())
}

// serve opens and runs everything that needs a running store. It ends when ctx ends
// or the store fails.
func serve(ctx, storeCtx context.Context, c Config, p parts) (err error) {
	f, err := open(ctx, c, p)
	if err != nil {
		return err
	}
	defer f.images.close()
	if f.audit, err = auditlog.Open(c.Audit, c.Logger); err != nil {
		return errors.Join(err, f.listener.Close())
	}
	defer func() { err = errors.Join(err, f.audit.Close()) }() // after the last request
	if f.images != nil {
		f.images.audit = f.audit
	}
	f.self = newSelf()
	f.admission, err = admission.New(admission.Config{Client: f.self.config(), Get: f.store.Get, Kinds: f.kinds, Authorizer: f.door.Authorizer()})
	if err != nil {
		return errors.Join(err, f.listener.Close())
	}
	f.reloads = f.newReloader()
	f.api = f.newAPI(storeCtx)
	f.repositories.SetCreate(creator{f.api}.create)
	f.collector.SetAdmission(f.api)
	return f.run(ctx, storeCtx)
}

// frontend is the running server: its listeners, their handlers, and the background
// tasks.
type frontend struct {
	parts
	config      Config
	controller  *definition.Controller
	migrations  *migration.Controller
	images      *registryServer // nil: no registry
	provisioner *provisioner
	identity    *access.Identity
	directory   *directory.Directory
	aggregator  *policy.Aggregator
	tokenKeys   *serviceaccount.Keys
	defaults    *serviceaccount.Defaults
	door        *access.Door
	listener    net.Listener
	missing     map[string]bool // processes that the last round of ensureWellKnown missed
	self        *self
	admission   *admission.Chain
	audit       *auditlog.Log // nil: none
	api         *api.API
	reloads     *reloader
	strangers   *inflight.Strangers // of the API's listener
}

// open reads the stored definitions, creates the system namespaces, opens the
// listeners, and writes the objects that say where the server is. It does not serve yet.
func open(ctx context.Context, c Config, p parts) (f *frontend, err error) {
	f = &frontend{parts: p, config: c, strangers: inflight.NewStrangers(c.MaxRequests)}
	// The chain is opened before the first object is converted.
	convert := func(crd *apiextensionsv1.CustomResourceDefinition) (copying, changing runtime.ObjectConvertor, err error) {
		return f.admission.NewConverter(crd)
	}
	f.controller = definition.New(p.store, p.kinds, p.definitions, convert, c.Logger)
	if f.migrations, err = migration.New(p.store, p.kinds, p.definitions, c.Logger); err != nil {
		return nil, err
	}
	if err := f.controller.Load(ctx); err != nil {
		return nil, err
	}
	if err := ensureNamespaces(ctx, p.store, p.kinds); err != nil {
		return nil, err
	}
	if err := f.openAccess(ctx); err != nil {
		return nil, err
	}
	if f.images, err = openRegistry(ctx, c, p, f.door, f.tokenKeys); err != nil {
		return nil, err
	}
	if f.listener, f.identity, err = listen(c); err != nil {
		f.images.close()
		return nil, err
	}
	// The system namespaces are complete before the first client sees them.
	f.defaults = &serviceaccount.Defaults{Writer: f.writer(), CA: f.identity.AuthorityPEM(), Retired: f.identity.RetiredPEM(), Logger: c.Logger}
	if err = f.defaults.Ensure(ctx, systemNamespaces...); err == nil {
		f.provisioner, err = openBroker(c, p, f.identity, f.listener)
	}
	if err != nil {
		f.images.close()
		return nil, errors.Join(err, f.listener.Close())
	}
	f.ensureWellKnown(ctx) // before the first client looks for them
	f.services().Start(ctx)
	return f, nil
}

// newMetrics registers the metrics of all parts.
func (f *frontend) newMetrics() *metrics {
	state := &stateMetrics{
		version: f.config.Version, data: f.config.Data, db: f.db, identity: f.identity, paused: f.collector.Paused, log: f.config.Logger,
	}
	return newMetrics(f.db, f.store, append(f.meters(), state)...)
}

// meters are the metrics of all parts; the review engines are among them.
func (f *frontend) meters() []prometheus.Collector {
	queues := []prometheus.Collector{f.nodes.Engine(), f.quotas.Engine(), f.archive.Engine()}
	for _, engine := range f.collector.Engines() {
		queues = append(queues, engine)
	}
	return slices.Concat(strangerMeters("api", f.strangers), accessMeters(f.door.Throttle(), f.audit), f.images.meters(), f.provisioner.meters(), queues)
}

func (f *frontend) newAPI(storeCtx context.Context) *api.API {
	meters := f.newMetrics()
	return api.New(api.Config{
		Store: f.store, Kinds: f.kinds, Access: f.door, OpenAPI: openapi.New(f.kinds, f.config.Version),
		Metrics: meters.handler(), Observer: meters.observe, Audit: f.audit, Admission: f.admission, Extra: f.extra(f.images, f.reloads), Open: f.nodes.NodeHandler(),
		SlowRequest: f.config.SlowRequest, LogRequests: f.config.LogRequests,
		MaxRequests: f.config.MaxRequests, MaxCascade: f.config.MaxCascade, GuardWarning: f.previews.Held,
		Logger: f.config.Logger, Version: f.config.Version,
		Ready: func() error {
			ctx, cancel := context.WithTimeout(storeCtx, 5*time.Second)
			defer cancel()
			return f.store.Ping(ctx)
		},
	})
}

// run serves and runs the tasks until ctx ends, the store ends or one task fails;
// then all of them end.
func (f *frontend) run(ctx, storeCtx context.Context) error {
	web := newHTTPServer(limitBodies(apiBodies, f.withConsole(f.api)), f.strangers, f.identity, f.config)
	group, groupCtx := errgroup.WithContext(ctx)
	for _, task := range f.tasks() {
		group.Go(func() error { return task(groupCtx) })
	}
	group.Go(func() error {
		if err := web.ServeTLS(stallListener{f.listener, f.config.StallTimeout, f.strangers}, "", ""); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		select {
		case <-groupCtx.Done():
		case <-storeCtx.Done():
			noteStop(ctx, storeCtx, f.config.Logger)
			return errors.New("the store stopped")
		}
		noteStop(ctx, storeCtx, f.config.Logger)
		return shutdown(web, f.api, f.config.Logger)
	})
	f.config.Started(addresses(f.config, f.listener, f.images))
	group.Go(func() error { return f.serviceManager().run(groupCtx) })
	group.Go(func() error { f.noteStart(groupCtx); return nil })
	return group.Wait()
}

// tasks returns the background tasks; each runs until its context ends.
func (f *frontend) tasks() []func(context.Context) error {
	tasks := []func(context.Context) error{
		f.controller.Run,
		f.migrations.Run,
		f.directory.Run,
		f.aggregator.Run,
		f.sessions.Run,
		f.tokenKeys.Run,
		f.defaults.Run,
		f.signer().Run,
		func(ctx context.Context) error { return f.identity.WatchFiles(ctx, f.config.Logger) },
		f.nodes.Run,
		f.quotas.Run,
		func(ctx context.Context) error { return f.archive.Run(ctx, f.api.ClientOf) },
		f.provisioner.run,
		f.admission.Run,
		func(ctx context.Context) error { return f.self.serve(ctx, f.api) },
		func(ctx context.Context) error { return f.images.run(ctx, f.identity) },
		f.images.updateStatuses,
		f.images.collect,
		func(ctx context.Context) error { return keepNamespaces(ctx, f.store, f.kinds, f.config.Logger) },
		f.addresses.Run,
		f.keepWellKnown,
		f.services().Run,
		newRenewal(f.config, f.identity, f.listener).run,
		f.reloads.run,
	}
	if !f.config.NoCollector {
		tasks = append(tasks, f.collector.Run)
	}
	return tasks
}

// closeTraces sends the last spans. A collector that does not answer is no reason to fail.
func closeTraces(exporter *otlp.Exporter, log *slog.Logger) {
	if err := exporter.Close(); err != nil {
		log.Warn("the last traces were not sent", "error", err)
	}
}

// newHTTPServer creates an HTTP server for the connections of a stallListener, with time
// limits for slow and idle clients, and kube-apiserver's limits of headers and streams. The
// memory for a frame is allocated before the frame arrives, so frames are small.
func newHTTPServer(handler http.Handler, strangers *inflight.Strangers, identity *access.Identity, c Config) *http.Server {
	return &http.Server{
		Handler: tracing.Handler(c.tracer, strangers.Handler(stallHandler(handler, c.StallTimeout))), TLSConfig: identity.TLSConfig(),
		ConnContext:       connContext,
		MaxHeaderBytes:    1 << 20,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 100, MaxReadFrameSize: 64 << 10},
		ReadHeaderTimeout: 30 * time.Second, IdleTimeout: 3 * time.Minute,
		ErrorLog: slog.NewLogLogger(c.Logger.Handler(), slog.LevelDebug),
	}
}

// shutdown ends watches first, because they would last for the whole grace. They get
// half of it, so that writing requests have the other half. After the grace every
// connection is closed, even if its client does not read.
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

// redirectKlog sends the log of the Kubernetes libraries to our debug log. Errors
// that matter are returned by the libraries anyway.
func redirectKlog(ctx context.Context, log *slog.Logger) {
	if log.Enabled(ctx, slog.LevelDebug) {
		klog.SetSlogLogger(log.With("from", "kubernetes libraries"))
		return
	}
	klog.SetLogger(logr.Discard())
}
