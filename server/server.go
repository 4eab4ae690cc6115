// Package server assembles Exeunt: database, store, kinds, API, listener.
// Start reading here: Run is the whole program in order.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/api"
	"github.com/exeunt/exeunt/archive"
	"github.com/exeunt/exeunt/definition"
	"github.com/exeunt/exeunt/force"
	"github.com/exeunt/exeunt/foresight"
	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/kind/custom"
	"github.com/exeunt/exeunt/mesh"
	"github.com/exeunt/exeunt/mesh/v1alpha1"
	"github.com/exeunt/exeunt/openapi"
	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/registry/repository"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// Config is what a server needs to know. The zero value of a field is its
// default.
type Config struct {
	// Data is the directory that holds certificates, the kubeconfig and, by
	// default, the database. Default ./data.
	Data string
	// Listen is the API's address, HOST:PORT; port 0 picks one. Default
	// 127.0.0.1:6443.
	Listen string
	// RegistryListen is the OCI registry's address, HOST:PORT; port 0 picks one.
	// Empty: no registry. Only on loopback is it plain HTTP.
	RegistryListen string
	// RegistryReviewAfter sets how long after an event of the registry its
	// subject is reviewed. Events that are not named keep what the database says.
	RegistryReviewAfter map[string]time.Duration
	// RegistryKeepManifests and RegistryKeepBlobs stop the collection of the
	// registry's manifests and blobs. What could go waits in the queues.
	RegistryKeepManifests, RegistryKeepBlobs bool
	// RegistryDeclared refuses pushes to repositories that no Repository
	// declares; otherwise the first push makes it.
	RegistryDeclared bool
	// RegistryNoNamespaces refuses pushes into namespaces that do not exist;
	// otherwise the first push makes them.
	RegistryNoNamespaces bool
	// RegistryStorage is where the registry keeps bytes: a directory, or
	// s3://BUCKET/PREFIX as blobstore.Open takes it. Default blobs in Data.
	RegistryStorage string
	// RegistryRedirect sends clients to S3 for the bytes of blobs.
	RegistryRedirect bool
	// Database is a postgres:// URL or the path of a SQLite file. Default
	// exeunt.db in Data.
	Database string
	// NoCollector leaves the garbage collector off: nothing is collected here,
	// and what waits for it waits until a server runs with it.
	NoCollector bool
	// MaxCascade is how many objects a delete may take with it without being
	// confirmed, the object itself included; a Namespace's annotation overrides
	// it. 0: any number.
	MaxCascade int64
	// ArchiveFor is how long removed objects can be restored; a Namespace's
	// annotation overrides it. 0: nothing is archived.
	ArchiveFor time.Duration
	// ArchiveMaxBytes bounds the archive; the oldest leave first. Default 1 GiB.
	ArchiveMaxBytes int64
	// ArchiveSecrets: the archive keeps the content of Secrets too.
	ArchiveSecrets bool
	// MeshHeartbeat is how often nodes of the mesh are asked to be heard of; one
	// that is not heard of four times in a row is unreachable. Default 10 seconds.
	MeshHeartbeat time.Duration
	// ManagementKubeconfig is the cluster that the broker builds on. Default: this
	// server.
	ManagementKubeconfig string
	// EventsWebhook is a URL that is told the broker's events. Empty: none.
	EventsWebhook string
	// EnrolURL is where machines that the broker builds reach this server. Default
	// the address in the kubeconfig.
	EnrolURL string
	// Version is this program's version.
	Version string
	// Out is where a person reads the addresses. Default os.Stdout.
	Out io.Writer
	// Logger receives what operators read. Default slog.Default.
	Logger *slog.Logger
}

// shutdownGrace is how long requests may take to finish when the server stops.
const shutdownGrace = 10 * time.Second

func (c Config) withDefaults() Config {
	if c.Data == "" {
		c.Data = "data"
	}
	if c.Listen == "" {
		c.Listen = "127.0.0.1:6443"
	}
	if c.Database == "" {
		c.Database = filepath.Join(c.Data, "exeunt.db")
	}
	if c.RegistryStorage == "" {
		c.RegistryStorage = filepath.Join(c.Data, "blobs")
	}
	if c.Out == nil {
		c.Out = os.Stdout
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Run serves until the context ends, then stops in order: watches are told,
// requests finish, the last writes are committed.
func Run(ctx context.Context, c Config) error {
	c = c.withDefaults()
	quietLibraries(ctx, c.Logger)
	collectSooner()
	defer forgetStart(c.Logger)()
	if err := os.MkdirAll(c.Data, 0o700); err != nil {
		return fmt.Errorf("make data directory: %w", err)
	}
	unlock, err := lockData(c.Data)
	if err != nil {
		return err
	}
	defer unlock()
	db, err := sqldb.Open(ctx, c.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	st, err := store.Open(ctx, store.Options{
		DB: db, Logger: c.Logger,
		Archive: store.ArchiveOptions{For: c.ArchiveFor, MaxBytes: c.ArchiveMaxBytes, Secrets: c.ArchiveSecrets},
	})
	if err != nil {
		return err
	}
	defer st.Close()
	definitions := custom.Definition()
	kinds := kind.NewRegistry(append(builtin.Kinds(), definitions))
	for _, k := range archive.New(db, st, kinds, archive.Options{Logger: c.Logger}).Kinds() {
		kinds.Put(k)
	}
	questions, err := foresight.New(db, kinds, foresight.Options{CollectorOff: c.NoCollector, MaxCascade: c.MaxCascade})
	if err != nil {
		return err
	}
	for _, k := range questions.Kinds() {
		kinds.Put(k)
	}
	overrides, err := force.New(st, kinds, c.Logger)
	if err != nil {
		return err
	}
	for _, k := range overrides.Kinds() {
		kinds.Put(k)
	}
	repositories, err := newRepositories(c, db, st, kinds)
	if err != nil {
		return err
	}
	kinds.Put(repositories.Kind())
	collector, err := gc.New(db, st, kinds, gc.Options{Logger: c.Logger})
	if err != nil {
		return err
	}
	nodes, err := mesh.New(db, st, kinds, mesh.Options{Heartbeat: c.MeshHeartbeat, Logger: c.Logger})
	if err != nil {
		return err
	}

	// The store must outlive the API: requests that are being answered while
	// the server stops still write.
	storeCtx, stopStore := context.WithCancel(context.WithoutCancel(ctx))
	stores, storeCtx := errgroup.WithContext(storeCtx)
	stores.Go(func() error { return st.Run(storeCtx) })
	err = serve(ctx, storeCtx, c, parts{db, st, kinds, definitions, collector, questions, nodes, repositories})
	stopStore()
	return errors.Join(err, stores.Wait())
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

// parts is what stands before the server serves.
type parts struct {
	db          *sqldb.DB
	store       *store.Store
	kinds       *kind.Registry
	definitions *kind.Kind
	collector   *gc.Collector
	questions   *foresight.Service
	nodes       *mesh.Mesh

	repositories *repository.Repositories
}

// extra serves what no Kubernetes server has, under /exeunt/.
func (p parts) extra(images *registryServer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(registry.ControlPath+"/", images.control())
	mux.Handle(gc.Path, p.collector)
	mux.Handle(gc.Path+"/", p.collector)
	mux.Handle(v1alpha1.Path, p.nodes.TokenHandler())
	return mux
}

// serve runs everything that stands on the store. It ends when ctx does or
// when the store has failed.
func serve(ctx, storeCtx context.Context, c Config, p parts) error {
	st, kinds := p.store, p.kinds
	controller := definition.New(st, kinds, p.definitions, c.Logger)
	if err := controller.Load(ctx); err != nil {
		return err
	}
	if err := ensureNamespaces(ctx, st, kinds); err != nil {
		return err
	}
	images, err := openRegistry(ctx, c, p)
	if err != nil {
		return err
	}
	defer images.close()
	listener, identity, err := listen(c)
	if err != nil {
		return err
	}
	provisioner, err := openBroker(c, p)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	meters := newMetrics(st, slices.Concat(images.meters(), provisioner.meters(), []prometheus.Collector{p.collector.Engine(), p.nodes.Engine()})...)
	a := api.New(api.Config{
		Store: st, Kinds: kinds, Access: &access.Authenticator{}, OpenAPI: openapi.New(kinds, c.Version),
		Metrics: meters.handler(), Extra: p.extra(images), Open: p.nodes.NodeHandler(), Observer: meters.observe, Logger: c.Logger, Version: c.Version,
		MaxCascade: c.MaxCascade, Foresee: p.questions.Held,
		Ready: func() error {
			ctx, cancel := context.WithTimeout(storeCtx, 5*time.Second)
			defer cancel()
			return st.Ping(ctx)
		},
	})
	web := &http.Server{
		Handler: a, TLSConfig: identity.TLSConfig(),
		ReadHeaderTimeout: 30 * time.Second, IdleTimeout: 3 * time.Minute, MaxHeaderBytes: 1 << 20,
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: 1000},
		ErrorLog: slog.NewLogLogger(c.Logger.Handler(), slog.LevelDebug),
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return controller.Run(groupCtx) })
	group.Go(func() error { return images.run(groupCtx, identity) })
	group.Go(func() error { return images.collect(groupCtx) })
	group.Go(func() error { return p.nodes.Run(groupCtx) })
	group.Go(func() error { return provisioner.run(groupCtx) })
	group.Go(func() error { return images.keep(groupCtx) })
	if !c.NoCollector {
		group.Go(func() error { return p.collector.Run(groupCtx) })
	}
	group.Go(func() error {
		if err := web.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
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
		return shutdown(web, a)
	})
	announce(c, listener.Addr().String(), images.url())
	return group.Wait()
}

// shutdown ends watches first: they would hold the server up to its grace.
func shutdown(web *http.Server, a *api.API) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancel()
	a.Close()
	if err := web.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("requests did not finish within %s: %w", shutdownGrace, err), web.Close())
	}
	return nil
}

// listen opens the listener, makes certificates for where it listens, and
// writes the administrator's kubeconfig: all of it is there once the server
// answers.
func listen(c Config) (net.Listener, *access.Identity, error) {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return nil, nil, fmt.Errorf("--listen %q: want HOST:PORT: %w", c.Listen, err)
	}
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, nil, fmt.Errorf("listen on %s: %w", c.Listen, err)
	}
	identity, err := access.Open(filepath.Join(c.Data, "pki"), append(hostNames(host), registryNames(c)...), time.Now())
	if err != nil {
		return nil, nil, errors.Join(err, listener.Close())
	}
	if err := identity.WriteKubeconfig(filepath.Join(c.Data, "kubeconfig"), serverURL(host, listener)); err != nil {
		return nil, nil, errors.Join(err, listener.Close())
	}
	return listener, identity, nil
}

// hostNames are the names that clients may use for this server.
func hostNames(host string) []string {
	names := []string{"localhost", "127.0.0.1", "::1"}
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified() && !ip.IsLoopback()) && host != "localhost" {
		names = append(names, host)
	}
	if name, err := os.Hostname(); err == nil && name != "" {
		names = append(names, name)
	}
	return names
}

// serverURL is the address in the kubeconfig; a server that listens everywhere
// is reached on loopback by those who can read that file.
func serverURL(host string, l net.Listener) string {
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "https://" + net.JoinHostPort(host, port)
}

func announce(c Config, address, registry string) {
	kubeconfig := filepath.Join(c.Data, "kubeconfig")
	if abs, err := filepath.Abs(kubeconfig); err == nil {
		kubeconfig = abs
	}
	fmt.Fprintf(c.Out, "Exeunt %s serves the Kubernetes API at https://%s\n\n  export KUBECONFIG=%s\n  kubectl get namespaces\n\n", c.Version, address, kubeconfig)
	if registry != "" {
		fmt.Fprintf(c.Out, "The OCI registry is at %s\n\n", registry)
	}
}
