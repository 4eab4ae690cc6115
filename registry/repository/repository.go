// Package repository serves the registry's repositories as objects of the API:
// Repository, of registry.exeunt.dev/v1. It promises:
//
//   - Every repository that clients push to is an object: the first push creates
//     it, with its namespace, as its client could by the API, unless the operator
//     requires declared repositories.
//   - Deleting the object, its owner or its namespace deletes the repository.
//     The triggers of schema (…_repository_objects.sql) do that, in the
//     transaction that removes the object.
//   - Its status follows the content with a short delay, and costs a push
//     nothing.
//
// Objects are stored like those of any other kind. Begin with kind.go;
// declare.go serves pushes, status.go updates the status.
package repository

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	v1 "github.com/exeunt/exeunt/registry/v1"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// Options are the settings of Repositories. Zero values have a default.
type Options struct {
	// DeclaredOnly refuses pushes to repositories that have no object.
	DeclaredOnly bool
	// Create creates the objects of pushes.
	Create Create
	// CreateNamespace creates a namespace as the server, for repositories that are
	// older than the kind. Nil means that a push to a missing namespace is refused.
	CreateNamespace func(ctx context.Context, name string) error
	// Every is how often the status of changed repositories is updated. Default
	// one second.
	Every time.Duration
	// All is how often the status of all repositories is updated, to include the
	// changes of other replicas and of reviews. Default ten minutes.
	All time.Duration
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// Logger logs failures. Default slog.Default.
	Logger *slog.Logger
}

// Repositories manages the objects. It is safe for concurrent use.
type Repositories struct {
	db      *sqldb.DB
	store   *store.Store
	version *kind.Version
	opts    Options

	mu      sync.Mutex
	touched map[int64]bool      // ids of rows whose content has changed; guarded by mu
	rest    map[int64]time.Time // when a repository that is slow to count may be counted again; owned by Run
}

// New makes Repositories. It does no I/O.
func New(db *sqldb.DB, st *store.Store, o Options) (*Repositories, error) {
	if db == nil || st == nil {
		return nil, errors.New("repositories: need a database and a store")
	}
	if o.Every <= 0 {
		o.Every = time.Second
	}
	if o.All <= 0 {
		o.All = 10 * time.Minute
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	k, err := newKind()
	if err != nil {
		return nil, fmt.Errorf("repositories: %w", err)
	}
	return &Repositories{
		db: db, store: st, version: k.Versions[0], opts: o, touched: map[int64]bool{}, rest: map[int64]time.Time{},
	}, nil
}

// Kind is Repository.
func (r *Repositories) Kind() *kind.Kind { return r.version.Kind }

func (r *Repositories) key(namespace, name string) object.Key {
	return object.Key{Kind: r.version.Kind.Storage, Namespace: namespace, Name: name}
}

// Public reports whether clients that have not logged in may pull from the repository of a
// path: spec.anonymousPull of its object, as it is now.
func (r *Repositories) Public(ctx context.Context, path string) (bool, error) {
	if !v1.ValidPath(path) {
		return false, nil
	}
	o, err := r.store.Get(ctx, r.key(v1.Name(path)))
	if object.Is(err, object.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read Repository of %s: %w", path, err)
	}
	var body struct {
		Spec struct {
			Path          string `json:"path"`
			AnonymousPull bool   `json:"anonymousPull"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(o.Body, &body); err != nil {
		return false, fmt.Errorf("read Repository of %s: %w", path, err)
	}
	// The path differs if two paths have the same derived name.
	return body.Spec.AnonymousPull && body.Spec.Path == path, nil
}
