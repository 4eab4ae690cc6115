package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/access/auditlog"
	"github.com/exeunt/exeunt/admission"
	"github.com/exeunt/exeunt/admission/quota"
	"github.com/exeunt/exeunt/admission/service"
	"github.com/exeunt/exeunt/api"
	"github.com/exeunt/exeunt/api/health"
	"github.com/exeunt/exeunt/api/openapi"
	"github.com/exeunt/exeunt/backup"
	"github.com/exeunt/exeunt/broker/mesh"
	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
	"github.com/exeunt/exeunt/deletion/archive"
	"github.com/exeunt/exeunt/deletion/finalizer"
	"github.com/exeunt/exeunt/deletion/preview"
	"github.com/exeunt/exeunt/deletion/report"
	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/apiservice"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/kind/custom"
	"github.com/exeunt/exeunt/kind/definition"
	"github.com/exeunt/exeunt/kind/migration"
	"github.com/exeunt/exeunt/kind/objects"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/server/manifests"
)

// part is one subject of the server, as the others see it. What a part does not have is empty.
type part struct {
	name     string
	kinds    []*kind.Kind
	handlers map[string]http.Handler // paths that Kubernetes does not have, as patterns of http.ServeMux
	// open runs once, when the store runs and before the first client: the parts in their order.
	open func(context.Context) error
	// tasks run from then on, until the server stops.
	tasks  []task.Task
	queues []*review.Engine
	meters []prometheus.Collector
	check  func(context.Context) error // says for /readyz why the part cannot serve
	status func(context.Context, *Status) error
	reload func(Config)
	close  func() error // runs after the last request: the parts in reverse order
}

// controllerTasks are those that Config.NoControllers leaves off.
var controllerTasks = []string{
	"service-accounts", "role-aggregation", "signing", "storage-migration", "restores", "expiry", "expiry-policies", "mesh",
	"broker", "broker-events", "broker-follow", "blueprints", "account-secrets",
}

// assemble builds the parts. A part uses those above it. The store does not run yet: what reads or writes
// objects belongs into open or a task.
func (s *server) assemble(ctx context.Context) error {
	for _, add := range []func(context.Context) error{
		s.addDatabase, s.addIdentity, s.addKinds, s.addNamespaces, s.addAccess, s.addAudit, s.addAdmission, s.addDefinitions,
		s.addQuotas, s.addMesh, s.addPreviews, s.addAPI, s.addCollector, s.addExpiry, s.addArchive, s.addRegistry, s.addBroker, s.addWellKnown, s.addManifests, s.addControllers, s.addSettings,
	} {
		if err := add(ctx); err != nil {
			return err
		}
	}
	for _, p := range s.parts {
		s.kinds.Put(p.kinds...)
		for pattern, handler := range p.handlers {
			s.extra.Handle(pattern, handler)
		}
		for _, queue := range p.queues {
			s.metrics.registry.MustRegister(queue)
		}
		s.metrics.registry.MustRegister(p.meters...)
	}
	return nil
}

func (s *server) add(p part) { s.parts = append(s.parts, p) }

// close closes the parts, the last first.
func (s *server) close() error {
	var errs []error
	for _, p := range slices.Backward(s.parts) {
		if p.close != nil {
			errs = append(errs, p.close())
		}
	}
	return errors.Join(errs...)
}

// checks are those of /readyz.
func (s *server) checks() (all []health.Check) {
	for _, p := range s.parts {
		if p.check != nil {
			all = append(all, health.Check{Name: p.name, Run: p.check})
		}
	}
	return all
}

// writer writes objects in the name of a part.
func (s *server) writer(part string) objects.Writer {
	return objects.Writer{Store: s.store, Kinds: s.kinds, Actor: "system:exeunt:" + part}
}

// addManifests keeps a directory and the server in step. A start without the directory is refused, unlike in k3s, which makes
// its own: this one is named by the operator, and an empty directory in the place of a mistyped one would hide the mistake.
func (s *server) addManifests(context.Context) error {
	if s.config.Manifests == "" {
		return nil
	}
	if _, err := os.ReadDir(s.config.Manifests); err != nil {
		return fmt.Errorf("--manifests: %w: name a directory that the server may read, or make it", err)
	}
	keeper, err := manifests.NewKeeper(s.self.config(), s.config.Manifests, s.config.Logger)
	s.add(part{
		name: "manifests", tasks: []task.Task{task.Loop("manifests", keeper.Run)},
		status: func(context.Context, *Status) error { return keeper.Problem() },
	})
	return err
}

func (s *server) addDatabase(context.Context) error {
	var tasks []task.Task
	if s.reserve != nil {
		tasks = append(tasks, task.Loop("disk-reserve", s.reserve.run))
	}
	s.backups = &backups{server: s}
	if s.config.BackupTo != "" {
		tasks = append(tasks, task.Loop("backup", s.backups.run))
	}
	s.add(part{
		name: databasePart, check: s.store.Ping, tasks: tasks,
		status: func(ctx context.Context, all *Status) error {
			size, err := s.db.Size(ctx)
			last, due, backupErr := s.backups.due(ctx)
			if all.LastBackup = last; backupErr == nil && !s.config.Ephemeral {
				all.BackupDue = &due
			}
			var keysErr, runErr error
			all.Backup, runErr = backup.Now(ctx, s.db)
			all.Keys, keysErr = s.store.Sealed().Progress(ctx)
			all.Database = Database{Engine: string(s.db.Engine()), Bytes: size}
			if bytes, free, err := disk(s.config.Data); err == nil {
				all.Disk = Disk{Bytes: bytes, Free: free, Full: s.reserve.Full()}
			}
			return errors.Join(err, backupErr, keysErr, runErr)
		},
	})
	return nil
}

func (s *server) addIdentity(context.Context) (err error) {
	if s.listener, s.identity, err = listen(s.config); err != nil {
		return err
	}
	s.add(part{
		name: "identity", meters: strangerMeters("api", s.strangers),
		tasks: []task.Task{
			{Name: "certificate-files", Run: func(ctx context.Context) error { return s.identity.WatchFiles(ctx, s.config.Logger) }},
			{Name: "certificate-renewal", Run: newRenewal(s.config, s.identity, s.listener).run},
		},
		status: func(_ context.Context, all *Status) error {
			for name, expires := range s.identity.Expiries() {
				all.Certificates = append(all.Certificates, Certificate{name, expires.UTC()})
			}
			slices.SortFunc(all.Certificates, func(a, b Certificate) int { return strings.Compare(a.Name, b.Name) })
			return nil
		},
		close: func() error {
			_ = s.listener.Close() // the HTTP server has closed it, unless it never served
			return nil
		},
	})
	return nil
}

// addKinds adds the kinds that need nothing but the store.
func (s *server) addKinds(context.Context) (err error) {
	s.addresses = &service.Addresses{Store: s.store, Kinds: s.kinds, Log: s.config.Logger}
	if s.addresses.Range, err = service.ParseRange(s.config.ServiceRange); err != nil {
		return fmt.Errorf("--service-cluster-ip-range: %w", err)
	}
	overrides, err := finalizer.New(s.store, s.kinds, s.config.Logger)
	if err != nil {
		return err
	}
	kinds := append(overrides.Kinds(), builtin.Services(s.addresses.Attach))
	for _, made := range []func() (*kind.Kind, error){access.UserKind, apiservice.Kind, service.NodePortKind} {
		k, err := made()
		if err != nil {
			return err
		}
		kinds = append(kinds, k)
	}
	s.add(part{name: "services", kinds: kinds, tasks: []task.Task{{Name: "services", Run: s.addresses.Run}}})
	return nil
}

func (s *server) addNamespaces(context.Context) error {
	s.add(part{
		name: "namespaces", open: func(ctx context.Context) error { return ensureNamespaces(ctx, s.store, s.kinds) },
		tasks: []task.Task{{Name: "namespaces", Run: func(ctx context.Context) error {
			return keepNamespaces(ctx, s.store, s.kinds, s.config.Logger)
		}}},
	})
	return nil
}

func (s *server) addAudit(context.Context) (err error) {
	if s.audit, err = auditlog.Open(s.config.Audit, s.config.Logger); err != nil {
		return err
	}
	s.add(part{name: "audit", meters: accessMeters(s.access.Throttle(), s.audit), close: s.audit.Close})
	return nil
}

func (s *server) addAdmission(context.Context) (err error) {
	s.admission, err = admission.New(admission.Config{Client: s.self.config(), Get: s.store.Get, Kinds: s.kinds, Authorizer: s.access.Authorizer(), NoAccounts: s.config.NoAccountAdmission})
	if err != nil {
		return err
	}
	s.add(part{
		name: "admission", check: func(context.Context) error { return s.admission.Ready() },
		tasks: []task.Task{
			{Name: "admission", Run: s.admission.Run},
			{Name: "self", Run: func(ctx context.Context) error { return s.self.serve(ctx, s.api) }},
		},
	})
	return nil
}

func (s *server) addDefinitions(context.Context) error {
	definitions := custom.Definition()
	s.kinds.Put(definitions)
	controller := definition.New(s.store, s.kinds, definitions, s.admission.NewConverter, s.config.Logger)
	migrations, err := migration.New(s.store, s.kinds, definitions, s.config.Logger)
	if err != nil {
		return err
	}
	s.add(part{name: "definitions", open: controller.Load, tasks: []task.Task{
		{Name: "definitions", Run: controller.Run}, {Name: "storage-migration", Run: migrations.Run},
	}})
	return nil
}

func (s *server) addQuotas(context.Context) error {
	quotas, err := quota.New(s.db, s.store, s.kinds, s.config.Logger)
	if err != nil {
		return err
	}
	s.add(part{name: "quotas", queues: []*review.Engine{quotas.Engine()}, tasks: []task.Task{{Name: "quotas", Run: quotas.Run}}})
	return nil
}

func (s *server) addMesh(context.Context) (err error) {
	if s.nodes, err = mesh.New(s.db, s.store, s.kinds, mesh.Options{Heartbeat: s.config.MeshHeartbeat, Logger: s.config.Logger}); err != nil {
		return err
	}
	s.add(part{
		name: "mesh", queues: []*review.Engine{s.nodes.Engine()}, tasks: []task.Task{{Name: "mesh", Run: s.nodes.Run}},
		handlers: map[string]http.Handler{v1alpha1.Path: s.nodes.TokenHandler()},
	})
	return nil
}

func (s *server) addPreviews(context.Context) (err error) {
	if s.previews, err = preview.New(s.store, s.kinds, preview.Options{MaxCascade: s.config.MaxCascade}); err != nil {
		return err
	}
	reports, err := report.New(s.store, s.kinds, s.previews, report.Options{CollectorOff: s.config.NoCollector, OrphanWait: s.config.OrphanWait, Keepers: keepers()})
	if err != nil {
		return err
	}
	s.add(part{
		name: "previews", kinds: []*kind.Kind{s.previews.Kind(), reports.Kind()},
		reload: func(c Config) { s.previews.SetMaxCascade(c.MaxCascade) },
	})
	return nil
}

func (s *server) addAPI(context.Context) error {
	s.api = api.New(api.Config{
		Store: s.store, Kinds: s.kinds, Access: s.access, OpenAPI: openapi.New(s.kinds, s.config.Version),
		Metrics: s.metrics.handler(), Observer: s.metrics.observe, Audit: s.audit, Admission: s.admission, Extra: s.extra, Open: s.nodes.NodeHandler(),
		Limits: limitsOf(s.config), MaxRequests: s.config.MaxRequests, NoControllers: s.config.NoControllers, GuardWarning: s.previews.Held, Full: s.reserve.Full,
		Logger: s.config.Logger, Version: s.config.Version, Checks: s.checks,
	})
	s.add(part{name: "api", reload: func(c Config) { s.api.SetLimits(limitsOf(c)) }})
	return nil
}

func limitsOf(c Config) api.Limits {
	return api.Limits{SlowRequest: c.SlowRequest, LogRequests: c.LogRequests, MaxCascade: c.MaxCascade}
}

func (s *server) addCollector(context.Context) (err error) {
	s.collector, err = gc.New(s.db, s.store, s.kinds, gc.Options{Logger: s.config.Logger, OrphanWait: s.config.OrphanWait, Admission: s.api})
	if err != nil {
		return err
	}
	p := part{
		name: "collector", queues: s.collector.Engines(), handlers: map[string]http.Handler{gc.Path: s.collector, gc.Path + "/": s.collector},
		status: func(ctx context.Context, all *Status) (err error) {
			all.Collector, err = s.collector.Status(ctx)
			return err
		},
	}
	if !s.config.NoCollector {
		p.tasks = []task.Task{{Name: "collector", Run: s.collector.Run}}
	}
	s.add(p)
	return nil
}

func (s *server) addArchive(context.Context) error {
	restores, err := archive.New(s.db, s.store, s.kinds, archive.Options{Logger: s.config.Logger, Define: custom.Declared})
	if err != nil {
		return err
	}
	s.add(part{
		name: "archive", kinds: restores.Kinds(), queues: []*review.Engine{restores.Engine()},
		tasks: []task.Task{{Name: "restores", Run: func(ctx context.Context) error { return restores.Run(ctx, s.api.ClientOf) }}},
	})
	return nil
}

// addSettings adds what concerns the server as a whole.
func (s *server) addSettings(context.Context) error {
	s.reloads = s.newReloader()
	state := &stateMetrics{
		version: s.config.Version, data: s.config.Data, db: s.db, backups: s.backups, identity: s.identity, paused: s.collector.Paused, log: s.config.Logger,
	}
	s.addZPages()
	last := &hour{}
	s.add(part{
		name: "settings", meters: []prometheus.Collector{state, task.Restarts},
		handlers: map[string]http.Handler{"GET " + api.SettingsPath: s.reloads, "GET " + StatusPath: http.HandlerFunc(s.serveStatus), "GET " + HourPath: last},
		tasks: []task.Task{
			task.Loop("last-hour", func(ctx context.Context) { last.run(ctx, s.store.Removed, s.status) }),
			{Name: "reload", Run: s.reloads.run},
			{Name: "service-manager", Run: s.serviceManager().run},
			task.Loop("start", s.noteStart),
		},
	})
	return nil
}
