// Package directory keeps in memory what the store knows about clients: roles and
// bindings, users, service accounts. It follows the store's feed on every replica, so
// a change counts within a second everywhere, and a decision reads no database.
//
// It does not decide: package rbac and package access do. Begin with Directory.
package directory

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/access/rbac"
	v1 "github.com/exeunt/exeunt/access/v1"
	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// retryAfter is the pause after a failure of the store.
const retryAfter = 200 * time.Millisecond

// Directory follows the store. All methods are safe for concurrent use.
type Directory struct {
	store *store.Store
	log   *slog.Logger
	kinds []*followed // constant after New

	mu      sync.Mutex
	people  map[string]*v1.User // guarded by mu
	objects rbac.Objects        // guarded by mu; the index holds copies of the maps
	changed chan struct{}       // guarded by mu; closed when the index changes

	index atomic.Pointer[rbac.Index]
	users atomic.Pointer[users]

	accounts sync.Map // types.NamespacedName of a ServiceAccount to its types.UID
}

// users finds Users by credential. It is immutable.
type users struct {
	byName  map[string]*v1.User
	byToken map[string]userToken // by hash
}

type userToken struct {
	user    *v1.User
	expires time.Time // zero means never
}

// followed is one kind of objects that the directory holds.
type followed struct {
	storage string
	put     func(object.Object) error
	remove  func(object.Key)
	clear   func()
	changed func() // after a batch of changes
	from    int64  // revision up to which changes are known; owned by Load, then by Run
}

// New returns an empty directory: it gives no client a right.
func New(st *store.Store, log *slog.Logger) *Directory {
	d := Of(rbac.Objects{})
	d.store, d.log = st, log
	roles := follow(&d.objects.Roles, rbacv1.SchemeGroupVersion.WithKind("Role"), named)
	clusterRoles := follow(&d.objects.ClusterRoles, rbacv1.SchemeGroupVersion.WithKind("ClusterRole"), unscoped)
	roleBindings := follow(&d.objects.RoleBindings, rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), named)
	clusterBindings := follow(&d.objects.ClusterRoleBindings, rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"), unscoped)
	for storage, f := range map[string]*followed{
		"roles.rbac.authorization.k8s.io": roles, "clusterroles.rbac.authorization.k8s.io": clusterRoles,
		"rolebindings.rbac.authorization.k8s.io": roleBindings, "clusterrolebindings.rbac.authorization.k8s.io": clusterBindings,
	} {
		f.storage, f.changed = storage, d.rebuild
		d.kinds = append(d.kinds, f)
	}
	people := follow(&d.people, v1.GroupVersion.WithKind("User"), unscoped)
	people.storage, people.changed = "users.access.exeunt.dev", d.rebuildUsers
	d.kinds = append(d.kinds, people, d.followAccounts())
	return d
}

// Of returns a directory of these objects, which follows no store.
func Of(o rbac.Objects) *Directory {
	d := &Directory{objects: o, changed: make(chan struct{})}
	d.rebuild()
	d.rebuildUsers()
	return d
}

func named(k object.Key) types.NamespacedName {
	return types.NamespacedName{Namespace: k.Namespace, Name: k.Name}
}

func unscoped(k object.Key) string { return k.Name }

// typed is a pointer to an API type.
type typed[T any] interface {
	*T
	runtime.Object
}

// follow fills a map with the objects of a kind. The directory's lock guards the map.
func follow[K comparable, T any, P typed[T]](to *map[K]P, gvk schema.GroupVersionKind, key func(object.Key) K) *followed {
	*to = map[K]P{}
	return &followed{
		put: func(o object.Object) error {
			obj := P(new(T))
			if err := object.DecodeInto(o.Body, o.ResourceVersion(), gvk, obj); err != nil {
				delete(*to, key(o.Key))
				return err
			}
			(*to)[key(o.Key)] = obj
			return nil
		},
		remove: func(k object.Key) { delete(*to, key(k)) },
		clear:  func() { *to = map[K]P{} },
	}
}

// Roles returns the current roles and bindings.
func (d *Directory) Roles() *rbac.Index { return d.index.Load() }

// followAccounts keeps the uids of ServiceAccounts.
func (d *Directory) followAccounts() *followed {
	return &followed{
		storage: "serviceaccounts",
		put: func(o object.Object) error {
			d.accounts.Store(named(o.Key), o.UID)
			return nil
		},
		remove:  func(k object.Key) { d.accounts.Delete(named(k)) },
		clear:   d.accounts.Clear,
		changed: func() {},
	}
}

// Account returns the uid of a ServiceAccount, or "".
func (d *Directory) Account(namespace, name string) types.UID {
	uid, _ := d.accounts.Load(types.NamespacedName{Namespace: namespace, Name: name})
	found, _ := uid.(types.UID)
	return found
}

// UserByToken returns the User with a token of this hash, and when the token ends (zero:
// never). Nil if there is none.
func (d *Directory) UserByToken(hash string) (*v1.User, time.Time) {
	t := d.users.Load().byToken[hash]
	return t.user, t.expires
}

// User returns the User of this name, or nil.
func (d *Directory) User(name string) *v1.User { return d.users.Load().byName[name] }

// rebuildUsers indexes the users. The caller holds d.mu, or is New. A hash that two users
// have identifies neither: one of them has copied it.
func (d *Directory) rebuildUsers() {
	next := &users{byName: maps.Clone(d.people), byToken: map[string]userToken{}}
	for _, u := range d.people {
		for _, t := range u.Spec.Tokens {
			found := userToken{user: u}
			if t.Expires != nil {
				found.expires = t.Expires.Time
			}
			if other, taken := next.byToken[t.SHA256]; taken && other.user != u {
				found.user = nil
			}
			next.byToken[t.SHA256] = found
		}
	}
	d.users.Store(next)
}

// Changed returns the current roles and a channel that is closed when they change.
func (d *Directory) Changed() (*rbac.Index, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.index.Load(), d.changed
}

// rebuild makes a new index. The caller holds d.mu, or is New.
func (d *Directory) rebuild() {
	d.index.Store(rbac.NewIndex(rbac.Objects{
		Roles: maps.Clone(d.objects.Roles), ClusterRoles: maps.Clone(d.objects.ClusterRoles),
		RoleBindings: maps.Clone(d.objects.RoleBindings), ClusterRoleBindings: maps.Clone(d.objects.ClusterRoleBindings),
	}))
	close(d.changed)
	d.changed = make(chan struct{})
}

// Load reads all objects. The store must run.
func (d *Directory) Load(ctx context.Context) error {
	for _, f := range d.kinds {
		if err := d.load(ctx, f); err != nil {
			return fmt.Errorf("load the directory: %w", err)
		}
	}
	return nil
}

func (d *Directory) load(ctx context.Context, f *followed) error {
	listing, err := d.store.List(ctx, store.ListRequest{Kind: f.storage})
	if err != nil {
		return err
	}
	var objects []object.Object
	for listing.Next() {
		objects = append(objects, listing.Object())
	}
	if err := listing.Err(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	f.clear()
	for _, o := range objects {
		d.put(f, o)
	}
	f.changed()
	f.from = listing.Revision()
	return nil
}

// put adds an object. One that cannot be read gives no rights.
func (d *Directory) put(f *followed, o object.Object) {
	if err := f.put(o); err != nil {
		d.log.Error("object cannot be read and gives no rights", "object", o.Key.String(), "error", err)
	}
}

// Run follows the changes after Load until the context ends.
func (d *Directory) Run(ctx context.Context) error {
	var tasks []task.Task
	for _, f := range d.kinds {
		tasks = append(tasks, task.Loop("access", func(ctx context.Context) { d.follow(ctx, f) }))
	}
	return task.Run(ctx, d.log, tasks...)
}

// follow applies changes. After an error it reads everything again: the feed may have
// gone on without it.
func (d *Directory) follow(ctx context.Context, f *followed) {
	for ctx.Err() == nil {
		err := d.watch(ctx, f)
		for err != nil && ctx.Err() == nil {
			if !object.Is(err, object.Expired) {
				d.log.Warn("changes of roles and users cannot be followed; the next try is soon", "kind", f.storage, "error", err, "retry", retryAfter)
				task.Sleep(ctx, retryAfter)
			}
			err = d.load(ctx, f)
		}
	}
}

func (d *Directory) watch(ctx context.Context, f *followed) error {
	w, err := d.store.Watch(ctx, store.WatchRequest{Kind: f.storage, From: f.from})
	if err != nil {
		return err
	}
	for {
		events, upTo, err := w.Next(ctx)
		if err != nil {
			return err
		}
		if len(events) > 0 {
			d.apply(f, events)
		}
		f.from = upTo
	}
}

func (d *Directory) apply(f *followed, events []*store.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range events {
		if e.Type == store.Removed {
			f.remove(e.Object.Key)
			continue
		}
		d.put(f, e.Object)
	}
	f.changed()
}
