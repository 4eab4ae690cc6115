package server

import (
	"fmt"
	"net/http"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/admission/quota"
	"github.com/exeunt/exeunt/admission/service"
	"github.com/exeunt/exeunt/api"
	"github.com/exeunt/exeunt/broker/mesh"
	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
	"github.com/exeunt/exeunt/console"
	"github.com/exeunt/exeunt/deletion/archive"
	"github.com/exeunt/exeunt/deletion/finalizer"
	"github.com/exeunt/exeunt/deletion/preview"
	"github.com/exeunt/exeunt/deletion/report"
	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/apiservice"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/kind/custom"
	"github.com/exeunt/exeunt/registry/collect"
	"github.com/exeunt/exeunt/registry/repository"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// parts holds the components that use the store, before anything is served.
type parts struct {
	db          *sqldb.DB
	store       *store.Store
	kinds       *kind.Registry
	definitions *kind.Kind
	addresses   *service.Addresses

	previews     *preview.Service
	repositories *repository.Repositories
	collector    *gc.Collector
	archive      *archive.Archive
	quotas       *quota.Ledger
	nodes        *mesh.Mesh
	sessions     *console.Sessions     // set by openAccess
	browsers     *access.BrowserSignIn // set by openAccess; nil: there is no provider
}

// assemble builds the parts and registers their kinds. It does no I/O. It fails if
// a kind is inconsistent.
func assemble(c Config, db *sqldb.DB, st *store.Store) (p parts, err error) {
	definitions := custom.Definition()
	kinds := kind.NewRegistry(append(builtin.Kinds(), definitions))
	p = parts{db: db, store: st, kinds: kinds, definitions: definitions}
	p.addresses = &service.Addresses{Store: st, Kinds: kinds, Log: c.Logger}
	if p.addresses.Range, err = service.ParseRange(c.ServiceRange); err != nil {
		return p, fmt.Errorf("--service-cluster-ip-range: %w", err)
	}
	kinds.Put(builtin.Services(p.addresses.Attach))
	if p.previews, err = preview.New(st, kinds, preview.Options{MaxCascade: c.MaxCascade}); err != nil {
		return p, err
	}
	reports, err := report.New(st, kinds, p.previews, report.Options{CollectorOff: c.NoCollector, OrphanWait: c.OrphanWait, Keepers: keepers()})
	if err != nil {
		return p, err
	}
	overrides, err := finalizer.New(st, kinds, c.Logger)
	if err != nil {
		return p, err
	}
	if p.repositories, err = newRepositories(c, db, st, kinds); err != nil {
		return p, err
	}
	if p.collector, err = gc.New(db, st, kinds, gc.Options{Logger: c.Logger, OrphanWait: c.OrphanWait}); err != nil {
		return p, err
	}
	if p.quotas, err = quota.New(db, st, kinds, c.Logger); err != nil {
		return p, err
	}
	if p.nodes, err = mesh.New(db, st, kinds, mesh.Options{Heartbeat: c.MeshHeartbeat, Logger: c.Logger}); err != nil {
		return p, err
	}
	if p.archive, err = archive.New(db, st, kinds, archive.Options{Logger: c.Logger, Define: custom.Declared}); err != nil {
		return p, err
	}
	kinds.Put(p.archive.Kinds()...)
	kinds.Put(p.previews.Kind(), reports.Kind())
	kinds.Put(overrides.Kinds()...)
	kinds.Put(p.repositories.Kind())
	for _, made := range []func() (*kind.Kind, error){access.UserKind, apiservice.Kind, service.NodePortKind} {
		k, err := made()
		if err != nil {
			return p, err
		}
		kinds.Put(k)
	}
	return p, nil
}

// extra serves the paths that Kubernetes does not have: those below /exeunt/, and the
// settings.
func (p parts) extra(images *registryServer, settings http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+api.SettingsPath, settings)
	mux.Handle(collect.ControlPath+"/", images.control())
	mux.Handle(gc.Path, p.collector)
	mux.Handle(gc.Path+"/", p.collector)
	mux.Handle(console.LinkPath, p.sessions.LinkHandler())
	mux.Handle(v1alpha1.Path, p.nodes.TokenHandler())
	return mux
}
