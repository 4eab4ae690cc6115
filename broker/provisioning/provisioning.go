// Package provisioning is the broker as an API: the kinds Blueprint and
// ProvisionedResource, what they are checked against when they are written, and
// the way between stored objects and the broker's domain.
//
// It promises that what is accepted can be provisioned as far as can be known,
// and that a refusal names the field; that a ProvisionedResource does not leave
// before its teardown is over, unless somebody takes its finalizer; and that the
// version of a blueprint never changes.
//
// It decides nothing about resources: package broker does, and broker/reconcile
// drives it. Begin with [API].
package provisioning

import (
	"context"
	_ "embed"
	"log/slog"
	"time"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/custom"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

const (
	group = "provisioning.exeunt.dev"
	// ResourceStorage is what ProvisionedResources are stored under. The triggers
	// of the schema name it too.
	ResourceStorage = "provisionedresources." + group
	// TeardownFinalizer keeps a ProvisionedResource until it is torn down.
	TeardownFinalizer = "provisioning.exeunt.dev/teardown"
	// InUseFinalizer keeps a Blueprint while resources were built by it.
	InUseFinalizer = "provisioning.exeunt.dev/in-use"
)

//go:embed blueprint.yaml
var blueprintYAML []byte

//go:embed provisionedresource.yaml
var resourceYAML []byte

// Admission checks a declaration against what it refers to, and stores nothing:
// broker.Service.
type Admission interface {
	Admit(ctx context.Context, request broker.ProvisionRequest) error
}

// API keeps the objects of the two kinds. It is safe for concurrent use.
type API struct {
	db        *sqldb.DB
	store     *store.Store
	kinds     *kind.Registry
	log       *slog.Logger
	now       func() time.Time
	admission Admission // set once, by Serve

	blueprints, resources *kind.Version
}

// New makes the API. Its kinds can be served once Serve has told it who admits.
func New(db *sqldb.DB, st *store.Store, kinds *kind.Registry, log *slog.Logger) *API {
	if log == nil {
		log = slog.Default()
	}
	a := &API{db: db, store: st, kinds: kinds, log: log, now: time.Now}
	a.blueprints = load(blueprintYAML)
	a.blueprints.Strategy = blueprintStrategy{a.blueprints.Strategy}
	a.resources = load(resourceYAML)
	a.resources.Strategy = resourceStrategy{a.resources.Strategy}
	a.resources.Kind.Admit = a.admit
	return a
}

// Serve says who admits declarations, and returns the kinds.
func (a *API) Serve(admission Admission) []*kind.Kind {
	a.admission = admission
	return []*kind.Kind{a.blueprints.Kind, a.resources.Kind}
}

// load makes the one version of a kind from its description.
func load(text []byte) *kind.Version {
	k, err := custom.BuiltIn(text)
	if err != nil {
		panic(err) // a constant: one call in a test is proof
	}
	return k.Versions[0]
}

// at finds the object of a uid, or nil.
func (a *API) at(ctx context.Context, v *kind.Version, uid string) (*object.Object, error) {
	key := object.Key{Kind: v.Kind.Storage}
	found, err := a.db.Row(ctx, keyOfUID, []any{uid, key.Kind}, &key.Namespace, &key.Name)
	if err != nil || !found {
		return nil, err
	}
	o, err := a.store.Get(ctx, key)
	if object.Is(err, object.NotFound) || err == nil && string(o.UID) != uid {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &o, nil
}

// keyOfUID is by the unique index on uid.
const keyOfUID = `SELECT namespace, name FROM objects WHERE uid = $1 AND kind = $2`
