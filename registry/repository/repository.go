// Package repository is the registry's repositories as objects of the API:
// Repository, of registry.exeunt.dev/v1. It promises:
//
//   - Whatever can be pushed to is an object: the first push makes it, with its
//     namespace, unless the operator wants repositories declared.
//   - The object rules: who deletes it, or its owner, or its namespace, deletes
//     the repository. The triggers of schema (…_repository_objects.sql) carry
//     that out, in the transaction that removes the object.
//   - Its status follows the content, a little later, and costs a push nothing.
//
// Objects are stored like those of any other kind. Begin with kind.go;
// declare.go is what a push asks for, status.go the figures.
package repository

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// Options are what Repositories can be given. What is zero has a default.
type Options struct {
	// DeclaredOnly refuses pushes to repositories that nobody declared.
	DeclaredOnly bool
	// CreateNamespace makes the namespace of a repository that is pushed to.
	// Nil: such a push is refused.
	CreateNamespace func(ctx context.Context, name string) error
	// Every is how often the status of what was pushed to is brought up to
	// date. Default a second.
	Every time.Duration
	// All is how often that of all repositories is: what replicas and reviews
	// have changed. Default ten minutes.
	All time.Duration
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// Logger gets failures. Default slog.Default.
	Logger *slog.Logger
}

// Repositories keeps the objects. It is safe for concurrent use.
type Repositories struct {
	db      *sqldb.DB
	store   *store.Store
	version *kind.Version
	opts    Options

	mu      sync.Mutex
	touched map[int64]bool      // ids of rows whose content has changed; guarded by mu
	rest    map[int64]time.Time // when those whose figures are dear may be counted again; owned by Run
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
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
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
