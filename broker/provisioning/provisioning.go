// Package provisioning is the broker's API: the kinds Blueprint and
// ProvisionedResource, their admission checks, and the conversion between
// stored objects and the broker's domain.
//
// It promises that an accepted declaration can be provisioned as far as the
// broker can know, and that a refusal names the field; that a
// ProvisionedResource stays until its teardown is over, unless a client removes
// its finalizer; and that a version of a blueprint never changes.
//
// It decides nothing about resources: package broker does, and broker/reconcile
// drives it. Begin with [API].
package provisioning

import (
	"cmp"
	"context"
	_ "embed"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/custom"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

const (
	group = "provisioning.exeunt.dev"
	// ResourceStorage is the storage name of ProvisionedResources. The triggers
	// of the schema name it too.
	ResourceStorage = object.ProvisionedResources
	// TeardownFinalizer keeps a ProvisionedResource until its teardown is over.
	TeardownFinalizer = "provisioning.exeunt.dev/teardown"
	// InUseFinalizer keeps a Blueprint while a resource uses it.
	InUseFinalizer = "provisioning.exeunt.dev/in-use"
)

//go:embed blueprint.yaml
var blueprintYAML []byte

//go:embed provisionedresource.yaml
var resourceYAML []byte

// Admission checks a declaration against the objects that it refers to, and
// stores nothing: broker.Service.
type Admission interface {
	Admit(ctx context.Context, request broker.ProvisionRequest) error
}

// API stores the objects of the two kinds. It is safe for concurrent use.
type API struct {
	db        *sqldb.DB
	store     *store.Store
	kinds     *kind.Registry
	log       *slog.Logger
	now       func() time.Time
	admission Admission // set once, by Serve

	blueprints, resources *kind.Version
}

// New makes the API. Call Serve before its kinds are served.
func New(db *sqldb.DB, st *store.Store, kinds *kind.Registry, log *slog.Logger) *API {
	log = cmp.Or(log, slog.Default())
	a := &API{db: db, store: st, kinds: kinds, log: log, now: time.Now}
	a.blueprints = load(blueprintYAML)
	a.blueprints.Strategy = blueprintStrategy{a.blueprints.Strategy}
	a.resources = load(resourceYAML)
	a.resources.Strategy = resourceStrategy{a.resources.Strategy}
	a.resources.Kind.Admit, a.resources.Kind.Reborn = a.admit, true
	return a
}

// Serve sets the admission of declarations and returns the kinds.
func (a *API) Serve(admission Admission) []*kind.Kind {
	a.admission = admission
	return []*kind.Kind{a.blueprints.Kind, a.resources.Kind}
}

// load parses the one version of a kind from its definition.
func load(text []byte) *kind.Version {
	k, err := custom.BuiltIn(text)
	if err != nil {
		panic(err) // the text is embedded: one call in a test proves it
	}
	return k.Versions[0]
}

// at finds the object with a uid, or returns nil.
func (a *API) at(ctx context.Context, v *kind.Version, uid string) (*object.Object, error) {
	heads, err := a.store.Reader().Heads(ctx, []types.UID{types.UID(uid)})
	head, found := heads[types.UID(uid)]
	if err != nil || !found || head.Kind != v.Kind.Storage {
		return nil, err
	}
	o, err := a.store.Get(ctx, head.Key)
	if object.Is(err, object.NotFound) || err == nil && string(o.UID) != uid {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &o, nil
}
