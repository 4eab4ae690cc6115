// Package server assembles Exeunt: database, store, kinds, API, listeners.
// Start reading here: Run is the whole program in order. It opens the database, builds
// the parts (parts.go has the list), and runs all of them until the context ends.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/access/auditlog"
	"github.com/exeunt/exeunt/access/directory"
	"github.com/exeunt/exeunt/access/policy"
	"github.com/exeunt/exeunt/access/serviceaccount"
	"github.com/exeunt/exeunt/admission"
	"github.com/exeunt/exeunt/admission/service"
	"github.com/exeunt/exeunt/api"
	"github.com/exeunt/exeunt/broker/mesh"
	"github.com/exeunt/exeunt/console"
	"github.com/exeunt/exeunt/deletion/preview"
	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/internal/inflight"
	"github.com/exeunt/exeunt/internal/quickstart"
	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/internal/tracing"
	"github.com/exeunt/exeunt/internal/tracing/otlp"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// shutdownGrace is how long requests may take to finish when the server stops.
const shutdownGrace = 10 * time.Second

// servingGCPercent is GOGC, 100 by default, while the server serves: less memory for a little more
// CPU. The live heap is small compared to the garbage that requests make.
const servingGCPercent = 50

// startFor is how long after its start the server collects less often, and then once in all and
// gives the memory of the start back: a test that is as short never waits for a collection.
const startFor = time.Second

// startGCPercent is GOGC until then. A database of many megabytes may have many kinds, with which
// a third of the start would be collections; but they need several times the memory of an empty one.
func startGCPercent(database string) int {
	const small = 16 << 20
	if info, err := os.Stat(database); strings.Contains(database, "://") || err == nil && info.Size() > small {
		return 200
	}
	return quickstart.Percent
}

// Run serves until the context ends, then stops in order: watches end, requests
// finish, the last writes are committed.
func Run(ctx context.Context, c Config) (err error) {
	if err := Check(c); err != nil {
		return err
	}
	c, err = takeSockets(c.withDefaults())
	if err != nil {
		return err
	}
	defer c.sockets.close()
	redirectKlog(ctx, c.Logger)
	surviveLibraries(c.Logger)
	quickstart.Set(startGCPercent(c.Database))
	unlock, err := lockData(c.Data, c.Logger)
	if err != nil {
		return err
	}
	defer unlock()
	if err := checkRestored(c.Data); err != nil {
		return err
	}
	go policy.Default() // takes some milliseconds, in which the database opens
	kept := openReserve(c)
	defer func() { err = kept.advise(err) }()
	db, err := sqldb.OpenWithin(ctx, c.Database, sqldb.Limits{Statement: c.StatementTimeout, Lock: c.LockTimeout, IdleTransaction: c.IdleTransactionTimeout, NoSync: c.Ephemeral})
	if err != nil {
		return err
	}
	defer db.Close()
	st, err := openStore(ctx, c, db)
	if err != nil {
		return err
	}
	defer st.Close()
	st.History().Full = kept.Full
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
	s := newServer(c, db, st)
	s.reserve = kept
	defer func() { err = errors.Join(err, s.close()) }() // after the last request
	if err := s.assemble(ctx); err != nil {
		return err
	}

	// The store must outlive the API: requests that finish during the shutdown
	// still write.
	storeCtx, stopStore := context.WithCancel(context.WithoutCancel(ctx))
	stores, storeCtx := errgroup.WithContext(storeCtx)
	stores.Go(func() error { return st.Run(storeCtx) })
	err = s.serve(ctx, storeCtx)
	stopStore()
	return errors.Join(err, stores.Wait())
}

// Try is Check, and builds all parts as Run does, on an empty database in a directory that it removes: it refuses what
// Run refuses because of the settings and of the files that they name. It contacts no database and no bucket.
func Try(ctx context.Context, c Config) (err error) {
	if err := Check(c); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "exeunt-check-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c = c.withDefaults()
	c.Data, c.Database, c.RegistryStorage, c.RegistryRedirect = dir, filepath.Join(dir, "exeunt.db"), filepath.Join(dir, "blobs"), false
	c.Listen, c.Logger, c.GiveUpKey = "127.0.0.1:0", slog.New(slog.DiscardHandler), ""
	redirectKlog(ctx, c.Logger)
	if c.RegistryListen != "" {
		c.RegistryListen = "127.0.0.1:0"
	}
	if c.Audit.LogPath != "" {
		c.Audit.LogPath = filepath.Join(dir, "audit.log")
	}
	db, err := sqldb.OpenWithin(ctx, c.Database, sqldb.Limits{NoSync: true})
	if err != nil {
		return err
	}
	defer db.Close()
	st, err := openStore(ctx, c, db)
	if err != nil {
		return err
	}
	defer st.Close()
	s := newServer(c, db, st)
	return errors.Join(s.assemble(ctx), s.close())
}

// server is what its parts have in common.
type server struct {
	config  Config
	started time.Time
	db      *sqldb.DB
	store   *store.Store
	kinds   *kind.Registry
	metrics *metrics
	extra   *http.ServeMux // paths that Kubernetes does not have
	self    *self
	parts   []part
	reserve *reserve // nil if there is none
	backups *backups

	// Each is set by the add function of its part, for the parts below it.
	listener  net.Listener
	strangers *inflight.Strangers // of the listener
	identity  *access.Identity
	addresses *service.Addresses
	directory *directory.Directory
	tokenKeys *serviceaccount.Keys
	access    *access.Control
	sessions  *console.Sessions
	browsers  *access.BrowserSignIn // nil if there is no provider
	audit     *auditlog.Log         // nil if there is none
	admission *admission.Chain
	nodes     *mesh.Mesh
	previews  *preview.Service
	api       *api.API
	collector *gc.Collector
	images    *registryServer // nil if there is no registry
	reloads   *reloader
}

func newServer(c Config, db *sqldb.DB, st *store.Store) *server {
	return &server{
		config: c, started: time.Now(), db: db, store: st, kinds: kind.NewRegistry(builtin.Kinds()), metrics: newMetrics(db, st),
		extra: http.NewServeMux(), self: newSelf(), strangers: inflight.NewStrangers(c.MaxRequests),
	}
}

// serve opens the parts, and then serves and runs their tasks until ctx ends, the store ends or
// one of them fails. Then all of them end.
func (s *server) serve(ctx, storeCtx context.Context) error {
	var tasks []task.Task
	for _, p := range s.parts {
		if p.open != nil {
			if err := p.open(ctx); err != nil {
				return err
			}
		}
		for _, t := range p.tasks {
			if !s.config.NoControllers || !slices.Contains(controllerTasks, t.Name) {
				tasks = append(tasks, t)
			}
		}
	}
	web := newHTTPServer(limitBodies(apiBodies, s.withConsole()), s.strangers, s.identity, s.config)
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return task.Run(groupCtx, s.config.Logger, tasks...) })
	group.Go(func() error {
		if err := web.ServeTLS(stallListener{s.listener, s.config.StallTimeout, s.strangers}, "", ""); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		select {
		case <-groupCtx.Done():
		case <-storeCtx.Done():
			noteStop(ctx, storeCtx, s.config.Logger)
			return errors.New("the store stopped")
		}
		noteStop(ctx, storeCtx, s.config.Logger)
		return shutdown(web, s.api, s.config.Logger)
	})
	s.config.Started(addresses(s.config, s.listener, s.images))
	group.Go(func() error {
		if task.Sleep(groupCtx, startFor) {
			quickstart.Set(servingGCPercent)
			debug.FreeOSMemory()
		}
		return nil
	})
	return group.Wait()
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

// surviveLibraries lets goroutines of the Kubernetes libraries (watches of the admission chain) begin again
// after a panic, as our own tasks do.
func surviveLibraries(log *slog.Logger) {
	survive.Do(func() {
		utilruntime.ReallyCrash = false
		utilruntime.PanicHandlers = append(utilruntime.PanicHandlers, func(_ context.Context, p any) {
			task.Restarts.WithLabelValues("kubernetes-library").Inc()
			log.Error("goroutine of the Kubernetes libraries panicked and will begin again", "panic", p, "stack", string(debug.Stack()))
		})
	})
}

// survive is once for a process: the libraries' settings are variables that all servers of a process share.
var survive sync.Once
