// Package archive lists removed objects and restores them.
//
// The store writes a row for every removal, in the transaction that removes the
// object, and deletes the row when it expires (store/archive.go). This package
// serves those rows as the kind ArchivedObject (source.go), and it answers the
// kind Restore: it plans the order (plan.go, pure: owners before dependents) and
// creates them by the rules of any create, in groups that share transactions
// (restore_group.go). A Restore is stored and worked on until it has ended (request.go).
//
// It promises:
//
//   - Nothing is overwritten. An object whose name is taken is skipped.
//   - An object comes back as it was when its deletion was asked for, with its uid
//     (identity.go). The result names what differs (changes.go).
//   - A restore is idempotent: a repeated one continues where the last one
//     stopped.
//   - References are kept. If an owner does not exist, the collector would delete the
//     dependent at once, so its reference is left out, with a warning, and added
//     again when the owner is restored (relink.go).
//   - Kinds are known without their definitions (name.go).
//
// The package has no HTTP code. Begin with [Archive.Kinds].
package archive

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// Options configure an Archive. Zero values are the defaults.
type Options struct {
	Logger *slog.Logger
	Now    func() time.Time
	// Spare is how long before the request's deadline a restore stops, to write its
	// answer. Default 5 seconds.
	Spare time.Duration
	// KindWait bounds how long a restore waits until a restored
	// CustomResourceDefinition is served. Default 5 seconds.
	KindWait time.Duration
	// Define makes the kind that a CustomResourceDefinition declares, for dry runs. Nil: a dry run does not apply
	// the rules of kinds whose definition would come back with their objects.
	Define func(definition runtime.Object) (*kind.Kind, error)
}

// Archive lists removed objects and restores them. It is safe for concurrent use.
type Archive struct {
	db       *sqldb.DB
	store    *store.Store
	kinds    *kind.Registry
	opts     Options
	engine   *review.Engine
	begun    sync.Map                                                     // the found of Restores whose first pass has not begun, by name
	clientOf atomic.Pointer[func(context.Context, user.Info) kind.Client] // set by Run
}

// New makes an Archive, which records an Event when the store evicts cascades. It does no I/O.
func New(db *sqldb.DB, st *store.Store, kinds *kind.Registry, o Options) (*Archive, error) {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Spare <= 0 {
		o.Spare = 5 * time.Second
	}
	if o.KindWait <= 0 {
		o.KindWait = 5 * time.Second
	}
	a := &Archive{db: db, store: st, kinds: kinds, opts: o}
	st.OnEvict(a.evicted)
	var err error
	a.engine, err = review.New(db, queue, a, review.Transactions(db), review.Options{Now: o.Now, Logger: o.Logger})
	return a, err
}

// byUID reads the last removal of a uid; nil: the archive has none.
func (a *Archive) byUID(ctx context.Context, uid types.UID) (*row, error) {
	return a.store.Reader().LastArchived(ctx, store.ArchiveFilter{UID: uid})
}
