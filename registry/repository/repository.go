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
// Declare serves pushes, status.go updates the status.
package repository

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/objects"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/registry"
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
	writer  objects.Writer // of the status
	opts    Options

	mu        sync.Mutex
	touched   map[int64]bool // ids of rows whose content has changed; guarded by mu
	usesKnown atomic.Bool
	rest      map[int64]time.Time // when a repository that is slow to count may be counted again; owned by Run
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
		db: db, store: st, version: k.Versions[0], opts: o, writer: objects.Writer{Store: st, Kinds: kind.NewRegistry([]*kind.Kind{k}), Actor: actor}, touched: map[int64]bool{}, rest: map[int64]time.Time{},
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

var errNotCustom = errors.New("not a custom object")

// Create creates an object as a client of the registry: by a request to the API, so that
// roles, admission, quotas and the audit log treat it as any other create of that client.
// A refusal is Kubernetes' Status (apierrors).
type Create func(ctx context.Context, client registry.Client, resource string, obj *unstructured.Unstructured) error

// reserved begins the names of namespaces that Kubernetes keeps for itself. A client
// creates one on purpose, or not at all.
const reserved = "kube-"

// Declare creates the object of a path that a client pushes to, and first its namespace
// if there is none. It is idempotent; a crash between the two leaves an empty namespace,
// which the next push uses. A *registry.Error is for the client.
func (r *Repositories) Declare(ctx context.Context, client registry.Client, path string) error {
	namespace, name := v1.Name(path)
	if r.opts.DeclaredOnly {
		return denied("there is no Repository %s in namespace %s, and this registry accepts pushes only to declared repositories: create it first", name, namespace)
	}
	there, err := r.hasNamespace(ctx, namespace)
	if err == nil && !there {
		err = r.declareNamespace(ctx, client, namespace)
	}
	if err != nil {
		return err
	}
	err = r.opts.Create(ctx, client, v1.Plural, r.object(namespace, name, path))
	switch {
	case err == nil, apierrors.IsAlreadyExists(err): // another push has created it
		return nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err):
		return denied("namespace %s is being deleted", namespace)
	}
	return refusal(err, fmt.Sprintf("repository %s does not exist, and this push cannot create it", path))
}

func (r *Repositories) declareNamespace(ctx context.Context, client registry.Client, name string) error {
	switch {
	case r.opts.CreateNamespace == nil:
		return denied("there is no namespace %s, and this registry accepts pushes only to existing namespaces: create it first", name)
	case strings.HasPrefix(name, reserved):
		return denied("there is no namespace %s, and no push creates one of this name, which is reserved for the system", name)
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	u.SetName(name)
	failed := r.opts.Create(ctx, client, object.Namespaces, u)
	if failed == nil {
		return nil
	}
	// Another client may have created it meanwhile.
	there, err := r.hasNamespace(ctx, name)
	if err != nil || there {
		return err
	}
	return refusal(failed, fmt.Sprintf("there is no namespace %s, and this push cannot create it (kubectl create namespace %s)", name, name))
}

func (r *Repositories) hasNamespace(ctx context.Context, name string) (bool, error) {
	_, err := r.store.Get(ctx, object.Key{Kind: object.Namespaces, Name: name})
	switch {
	case object.Is(err, object.NotFound):
		return false, nil
	case err != nil && store.Unavailable(err):
		// The store may be stopping; the registry cannot see that.
		refusal := &registry.Error{Code: registry.Unavailable, Message: "the server is stopping, or its database does not answer; try again later"}
		return false, errors.Join(refusal, err)
	}
	return err == nil, err
}

// refusal is the registry's error for the API's refusal of a create.
func refusal(err error, what string) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return fmt.Errorf("%s: %w", what, err)
	}
	code := registry.Denied
	switch answer := int(status.Status().Code); {
	case answer == http.StatusTooManyRequests:
		code = registry.TooManyRequests
	case answer == http.StatusInternalServerError: // such as a webhook that does not answer
		code = registry.Unknown
	case answer > http.StatusInternalServerError:
		code = registry.Unavailable
	}
	return &registry.Error{Code: code, Message: what + ": " + status.Status().Message}
}

func denied(format string, args ...any) error {
	return &registry.Error{Code: registry.Denied, Message: fmt.Sprintf(format, args...)}
}

// Adopt creates the object of a path that is fetched from an upstream, and its namespace, as the server itself.
// A *registry.Error is for the client.
func (r *Repositories) Adopt(ctx context.Context, path string) error {
	err := r.adopt(ctx, path)
	if namespace, _ := v1.Name(path); object.Is(err, object.NoNamespace) {
		return denied("there is no namespace %s to keep what is fetched: create it", namespace)
	}
	return err
}

// adopt creates the object of a repository that is older than the kind, and its
// namespace, as the server itself.
func (r *Repositories) adopt(ctx context.Context, path string) error {
	namespace, name := v1.Name(path)
	err := r.create(ctx, namespace, name, path)
	if object.Is(err, object.NoNamespace) && r.opts.CreateNamespace != nil {
		if err := r.opts.CreateNamespace(ctx, namespace); err != nil {
			return fmt.Errorf("make namespace %s: %w", namespace, err)
		}
		err = r.create(ctx, namespace, name, path)
	}
	if object.Is(err, object.AlreadyExists) {
		return nil
	}
	return err
}

func (r *Repositories) create(ctx context.Context, namespace, name, path string) error {
	return r.writer.Create(ctx, v1.GroupVersion.WithResource(v1.Plural), r.object(namespace, name, path))
}

// object is a new Repository.
func (r *Repositories) object(namespace, name, path string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"path": path}}}
	u.SetGroupVersionKind(r.version.GVK)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}
