package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/access/auditlog"
	"github.com/exeunt/exeunt/access/registrytoken"
	"github.com/exeunt/exeunt/deletion"
	"github.com/exeunt/exeunt/internal/inflight"
	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/registry/cache"
	"github.com/exeunt/exeunt/registry/collect"
	"github.com/exeunt/exeunt/registry/repository"
	"github.com/exeunt/exeunt/registry/retain"
	"github.com/exeunt/exeunt/registry/underway"
	"github.com/exeunt/exeunt/registry/verify"
	"github.com/exeunt/exeunt/sqldb"
)

// registryServer serves the OCI registry at its own address, because clients expect
// it at the root of a host.
type registryServer struct {
	config   Config
	identity *access.Identity
	listener net.Listener
	plain    bool        // plain HTTP: only on loopback
	login    *localLogin // nil if the registry is not on loopback
	objects  *repository.Repositories
	images   *registry.Registry
	tokens   http.Handler  // the endpoint at registrytoken.Path
	audit    *auditlog.Log // nil if there is none
	db       *sqldb.DB
	garbage  *collect.Collector
	mover    *registry.Mover // nil: the bytes have one place
	metrics  *registryMetrics

	strangers *inflight.Strangers
}

// addRegistry adds the kind Repository, which exists also without the registry, since its objects may be
// in the database, and the registry, unless it is off.
func (s *server) addRegistry(ctx context.Context) error {
	c := s.config
	o := repository.Options{DeclaredOnly: c.RegistryDeclared, Logger: c.Logger, Create: creator{s.api}.create}
	if !c.RegistryNoNamespaces {
		o.CreateNamespace = func(ctx context.Context, name string) error { return createNamespace(ctx, s.store, s.kinds, name) }
	}
	repositories, err := repository.New(s.db, s.store, o)
	if err != nil {
		return err
	}
	retention, err := retain.New(s.db, s.store, retain.Options{
		Paused: func(ctx context.Context) (bool, error) {
			paused, err := s.collector.Paused(ctx)
			return paused || repositories.UsesUnknown() != nil, err
		},
		Changed: repositories.Touch, Logger: c.Logger,
	})
	if err != nil {
		return err
	}
	caches, err := cache.New(s.store, cache.Options{Secret: s.secret, Logger: c.Logger})
	if err != nil {
		return err
	}
	p := part{name: "registry", kinds: []*kind.Kind{repositories.Kind(), retention.Kind(), caches.Kind()}, handlers: map[string]http.Handler{collect.ControlPath + "/": http.HandlerFunc(noRegistry)}}
	if c.RegistryListen != "" {
		if s.images, err = s.openRegistry(ctx, repositories, caches); err != nil {
			return err
		}
		s.images.describe(&p)
		p.handlers[retain.Path] = retention
		p.meters = append(p.meters, caches.Meters()...)
		p.tasks = append(p.tasks, task.Task{Name: "registry-retention", Run: retention.Run}, task.Task{Name: "registry-cache", Run: caches.Run})
	}
	s.add(p)
	return nil
}

// secret returns the data of a Secret, for the login to an upstream.
func (s *server) secret(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	o, err := s.store.Get(ctx, object.Key{Kind: object.Secrets, Namespace: namespace, Name: name})
	if err != nil {
		return nil, err
	}
	var secret struct{ Data map[string][]byte }
	err = json.Unmarshal(o.Body, &secret)
	return secret.Data, err
}

// describe says what the registry adds to its part.
func (s *registryServer) describe(p *part) {
	p.handlers = map[string]http.Handler{collect.ControlPath + "/": collect.NewControl(s.images, s.garbage)}
	p.meters = append(s.garbage.Meters(), append(strangerMeters("registry", s.strangers), s.metrics.requests, s.metrics.durations)...)
	p.queues = s.garbage.Engines()
	p.tasks = []task.Task{
		{Name: "registry", Run: s.run}, {Name: "repositories", Run: s.objects.Run}, {Name: "registry-collector", Run: s.garbage.Run},
	}
	if s.mover != nil {
		p.tasks = append(p.tasks, task.Loop("registry-move", s.mover.Run))
	}
	p.status = func(ctx context.Context, all *Status) error {
		status, err := s.garbage.Stats(ctx)
		all.Registry = &Images{GivenBackBytes: status.Reclaimed, UnlinkBytes: status.UnlinkBytes}
		if s.mover != nil {
			left, ended := s.mover.Left()
			all.Registry.Move = &ImagesMove{Left: left, Ended: ended}
		}
		var listErr error
		all.Works, listErr = underway.List(ctx, s.db)
		return errors.Join(err, listErr)
	}
	p.reload = func(c Config) {
		s.metrics.setLog(c)
		s.images.SetQuotas(c.RegistryQuotas)
	}
	p.close = func() error {
		_ = s.listener.Close() // run has closed it, unless it never ran
		if s.mover != nil {
			return s.mover.Close()
		}
		return nil
	}
}

// openRegistry opens the listener and the blob store. The listener comes first: if the
// address is in use, nothing has been written yet.
func (s *server) openRegistry(ctx context.Context, repositories *repository.Repositories, caches *cache.Caches) (*registryServer, error) {
	c := s.config
	host, _, _ := net.SplitHostPort(c.RegistryListen) // checkAddresses has seen it
	listener, err := c.sockets.listen("registry", c.RegistryListen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s listens on the registry's address %s: give the registry another with --registry-listen, or none with --registry-listen=",
			holder(c.RegistryListen), c.RegistryListen)
	}
	if err != nil {
		return nil, fmt.Errorf("listen for the registry on %s: %w", c.RegistryListen, err)
	}
	r := &registryServer{
		config: c, identity: s.identity, listener: listener, plain: loopback(host), objects: repositories, audit: s.audit, db: s.db,
		metrics: newRegistryMetrics(c), strangers: inflight.NewStrangers(c.MaxRequests),
	}
	if r.plain {
		if err := r.checkPlain(); err != nil {
			return nil, errors.Join(err, listener.Close())
		}
		if r.login, err = openLocalLogin(c.Data); err != nil {
			return nil, errors.Join(err, listener.Close())
		}
	}
	blobs, err := openBlobs(ctx, c)
	if err == nil {
		err = checkBlobStore(ctx, c, s.db, blobs)
	}
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	r.garbage, err = collect.New(s.db, blobs, collect.Options{
		ReviewAfter: c.RegistryReviewAfter, KeepManifests: c.RegistryKeepManifests, KeepBlobs: c.RegistryKeepBlobs,
		KeepSignatures: c.RegistryKeepSignatures, Off: c.NoCollector, RemoveTimeout: c.RegistryRemoveTimeout,
		Paused: s.collector.Paused, Unready: repositories.UsesUnknown,
		Changed: repositories.Touch, Logger: c.Logger,
	})
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	settings := registry.Config{
		DB: s.db, Blobs: blobs, Declare: repositories.Declare, Upstream: caches.Of, Adopt: repositories.Adopt, Touched: repositories.Touch, Refresh: repositories.Refresh,
		Redirect: c.RegistryRedirect, MaxRequests: c.MaxRequests, Quotas: c.RegistryQuotas, Full: s.reserve.Full, Logger: c.Logger, Refuse: r.refuse(host),
	}
	if bucket, ok := blobs.(interface{ PartSize() int64 }); ok {
		settings.ChunkMinLength = bucket.PartSize()
	}
	if moving, ok := blobs.(*blobstore.Moving); ok {
		if r.mover, err = registry.NewMover(ctx, s.db, moving, c.Logger); err != nil {
			return nil, errors.Join(fmt.Errorf("--registry-storage %s: %w", c.RegistryStorage, err), listener.Close())
		}
	}
	front := &registryAccess{
		Control: s.access, tokens: registrytoken.New(s.tokenKeys, c.ServiceAccountIssuer, time.Now), issuer: c.ServiceAccountIssuer,
		login: r.login, open: c.RegistryAnonymous, public: repositories.Public,
	}
	r.tokens = front.endpoint(settings.Refuse)
	settings.Admit, settings.Challenge, settings.Record = front.admit, challenge, r.record
	if c.RegistryAnonymous {
		c.Logger.Warn("the registry asks for no credentials: every process on this machine can push and delete", "listen", c.RegistryListen)
	}
	r.images = registry.New(settings)
	return r, nil
}

// openBlobs opens the blob store.
func openBlobs(ctx context.Context, c Config) (blobstore.Store, error) {
	blobs, err := blobstore.Open(ctx, c.RegistryStorage)
	if err != nil {
		return nil, fmt.Errorf("--registry-storage: %w", err)
	}
	return blobs, nil
}

// checkStorage refuses locations that cannot be opened.
func checkStorage(c Config) error {
	direct, err := blobstore.Check(c.RegistryStorage)
	if err == nil && c.RegistryRedirect && !direct {
		return fmt.Errorf("--registry-redirect: clients cannot fetch from %s: it needs --registry-storage s3://…, and no move to it", c.RegistryStorage)
	}
	return err
}

// checkBlobStore checks that the blob store belongs to the database.
func checkBlobStore(ctx context.Context, c Config, db *sqldb.DB, blobs blobstore.Store) error {
	marked, ok := blobs.(blobstore.Marked)
	if !ok {
		return fmt.Errorf("--registry-storage %s: this kind of storage cannot have an id", c.RegistryStorage)
	}
	if err := registry.BindBlobStore(ctx, db, marked, c.RegistryAcceptStorage, c.Logger); err != nil {
		return fmt.Errorf("--registry-storage %s: %w. Name the storage that belongs to this database, or restore both from the same backup. "+
			"Replicas need storage that they share (s3://…), or no registry (--registry-listen=). "+
			"If its bytes are lost for good, start once with --registry-accept-storage, then run exeunt registry verify --repair (docs/operating.md, Backup)", c.RegistryStorage, err)
	}
	return nil
}

// checkPlain refuses plain HTTP on an address that other machines reach: the name
// localhost may resolve to one.
func (s *registryServer) checkPlain() error {
	if at, ok := s.listener.Addr().(*net.TCPAddr); ok && !at.IP.IsLoopback() {
		return fmt.Errorf("--registry-listen %s means %s here, which other machines can reach: "+
			"name that address, so that the registry serves TLS, or 127.0.0.1", s.config.RegistryListen, at.IP)
	}
	return nil
}

// refuse returns a function that says why a request is refused by its headers, or "".
// On loopback foreign host names are refused too: a page of another site may use them.
func (s *registryServer) refuse(host string) func(*http.Request) string {
	names := access.Hosts(append(slices.Clone(s.config.RegistryHosts), host))
	return func(req *http.Request) string {
		if why := access.FromPage(req); why != "" {
			return why
		}
		if s.plain {
			if why := names.Foreign(req); why != "" {
				return why + ": name it with --registry-host if it is"
			}
		}
		if impersonates, _ := access.Impersonates(req.Header); impersonates {
			return "the registry does not support impersonation"
		}
		return ""
	}
}

// noRegistry answers for a server without a registry, in the form that clients of the API
// read: they can tell it from a server that is no Exeunt server.
func noRegistry(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotFound)
	_ = json.NewEncoder(w).Encode(metav1.Status{ // the client may be gone
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound,
		Code: http.StatusNotFound, Message: "this server has no registry: it was started with --registry-listen=",
	})
}

// loopback reports whether only this machine can reach a host. A name other than
// localhost may resolve to any address.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// run serves until the context ends: plain HTTP on loopback, as clients expect of a
// registry on localhost, and TLS elsewhere.
func (s *registryServer) run(ctx context.Context) error {
	web := newHTTPServer(limitBodies(registryBodies, s.handler()), s.strangers, s.identity, s.config)
	web.MaxHeaderBytes = 64 << 10 // credentials, and paths of a few hundred bytes
	listener := stallListener{s.listener, s.config.StallTimeout, s.strangers}
	ended := make(chan error, 1)
	go func() {
		if s.plain {
			ended <- web.Serve(listener)
			return
		}
		ended <- web.ServeTLS(listener, "", "")
	}()
	select {
	case err := <-ended:
		return fmt.Errorf("serve the registry: %w", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	err := web.Shutdown(grace)
	if errors.Is(err, context.DeadlineExceeded) {
		// Uploads can take hours; clients resume them.
		err = web.Close()
	}
	<-ended
	s.images.Close()
	if err != nil {
		return fmt.Errorf("stop the registry: %w", err)
	}
	return nil
}

// handler serves the registry and its tokens.
func (s *registryServer) handler() http.Handler {
	tokens := s.images.Limited(s.tokens)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == registrytoken.Path {
			tokens.ServeHTTP(w, req)
			return
		}
		s.images.ServeHTTP(w, req)
	})
}

// url returns the address for clients.
func (s *registryServer) url() string {
	if s.plain {
		return "http://" + clientAddress(s.config.RegistryListen, s.listener)
	}
	return "https://" + clientAddress(s.config.RegistryListen, s.listener)
}

// registryNames returns the names that the serving certificate needs for the registry.
func registryNames(c Config) []string {
	host, _, err := net.SplitHostPort(c.RegistryListen)
	if ip := net.ParseIP(host); err != nil || host == "" || loopback(host) || ip != nil && ip.IsUnspecified() {
		return nil
	}
	return []string{host}
}

// VerifyRegistry checks the registry in a database and a blob store, with or without a
// running server. It creates neither of them.
func VerifyRegistry(ctx context.Context, c Config, o verify.Options) (sum verify.Result, err error) {
	c = c.withDefaults()
	for what, place := range map[string]string{"--database": c.Database, "--registry-storage": c.RegistryStorage} {
		if strings.Contains(place, "://") {
			continue
		}
		if _, err := os.Stat(place); err != nil {
			return sum, fmt.Errorf("%s: %w: say where the server has it, or --data", what, err)
		}
	}
	db, err := sqldb.Open(ctx, c.Database)
	if err != nil {
		return sum, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	blobs, err := openBlobs(ctx, c)
	if err != nil {
		return sum, err
	}
	if marked, ok := blobs.(blobstore.Marked); ok {
		if err := registry.CheckBlobStore(ctx, db, marked); err != nil {
			return sum, fmt.Errorf("--registry-storage %s: %w", c.RegistryStorage, err)
		}
	}
	var far atomic.Pointer[verify.Result]
	show := o.Progress
	o.Progress = func(r verify.Result) {
		far.Store(&r)
		if show != nil {
			show(r)
		}
	}
	defer underway.Follow(ctx, db, func() underway.Work {
		w := underway.Work{What: "Verification of the registry"}
		if r := far.Load(); r != nil {
			w.Far = DescribeVerified(*r)
		}
		return w
	})()
	return verify.Run(ctx, db, blobs, o)
}

// DescribeVerified returns how much of the registry was verified, for people.
func DescribeVerified(r verify.Result) string {
	return fmt.Sprintf("%d %s, %d %s, %d MiB read, %d %s", r.Manifests, deletion.Plural(r.Manifests, "manifest"),
		r.Blobs, deletion.Plural(r.Blobs, "blob"), r.Bytes>>20, r.Paths, deletion.Plural(r.Paths, "path"))
}
