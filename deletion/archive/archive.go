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
//     (restore.go). The result names what differs (plan.go).
//   - A restore is idempotent: a repeated one continues where the last one
//     stopped.
//   - References are kept. If an owner does not exist, the collector would delete the
//     dependent at once, so its reference is left out, with a warning, and added
//     again when the owner is restored (relink.go).
//   - Kinds are known without their definitions (target.go).
//
// The package has no HTTP code. Begin with [Archive.Kinds].
package archive

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
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
	// Define makes the kind that a CustomResourceDefinition declares, for dry runs. Nil if a dry run does not apply
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
	begun    sync.Map                                                     // the found of Restores whose first pass has not begun, by uid
	memory   budget                                                       // of reverts
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
	a := &Archive{db: db, store: st, kinds: kinds, opts: o, memory: budget{most: mostMemory}}
	st.OnEvict(a.evicted)
	var err error
	a.engine, err = review.New(db, queue, a, review.Transactions(db), review.Options{Now: o.Now, Logger: o.Logger})
	return a, err
}

// byUID reads the last removal of a uid; nil if the archive has none.
func (a *Archive) byUID(ctx context.Context, uid types.UID) (*row, error) {
	return a.store.Reader().LastArchived(ctx, store.ArchiveFilter{UID: uid})
}

// row is a removed object.
type row = store.Archived

// filter is the conditions of a list; an empty string adds no condition.
type filter struct {
	store.ArchiveFilter
	uid string // each ignores it: see addOne
}

func (f filter) matches(r *row) bool {
	for _, c := range [][2]string{
		{f.Namespace, r.Namespace}, {f.Kind, r.Kind}, {f.Name, r.Name}, {f.Actor, r.Actor}, {f.Requester, r.Requester}, {f.Cascade, r.Cascade}, {f.uid, string(r.UID)},
	} {
		if c[0] != "" && c[0] != c[1] {
			return false
		}
	}
	return true
}

// each calls visit with up to limit rows, the newest first, that were removed
// before a revision (0 means all).
func (a *Archive) each(ctx context.Context, f filter, before int64, limit int, visit func(*row) error) error {
	if err := a.store.Reader().Archived(ctx, f.ArchiveFilter, before, limit, visit); err != nil {
		return fmt.Errorf("read archive: %w", err)
	}
	return nil
}

// archived converts a row to the API type.
func (n *names) archived(r *row) (*v1.ArchivedObject, error) {
	gvk := n.gvk(r.Kind)
	removed := metav1.NewTime(time.UnixMilli(r.RemovedAt).UTC().Truncate(time.Second))
	o := &v1.ArchivedObject{
		TypeMeta: metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "ArchivedObject"},
		ObjectMeta: metav1.ObjectMeta{
			Name: string(r.UID), Namespace: r.Namespace, UID: r.UID, CreationTimestamp: removed,
			ResourceVersion: object.Object{Revision: r.ID}.ResourceVersion(),
		},
		Spec: v1.ArchivedObjectSpec{
			APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: r.Key().Namespace, Name: r.Name, UID: r.UID,
			RemovedAt: removed, RequestedBy: r.Requester, RequestID: r.RequestID, Actor: r.Actor, Cascade: r.Cascade, Size: r.Size,
		},
	}
	if r.Body == nil {
		return o, nil
	}
	wire, err := n.wire(r, gvk)
	if err != nil {
		return nil, fmt.Errorf("show archived %s: %w", r.Key(), err)
	}
	o.Object = &runtime.RawExtension{Raw: wire}
	return o, nil
}

// wire encodes the original as clients see it.
func (n *names) wire(r *row, gvk schema.GroupVersionKind) ([]byte, error) {
	k, ok := n.served.Stored(r.Kind)
	if !ok || len(k.Versions) == 0 || k.Versions[0].Raw {
		_, body, err := object.CutVersion(r.Body)
		if err != nil {
			return nil, err
		}
		return object.AppendWire(nil, object.WirePrefix(gvk), body, r.BodyRevision), nil
	}
	decode := k.Versions[0].Decode
	if stored := k.Versions[0].DecodeStored; stored != nil {
		decode = stored // a webhook must not delay the archive, nor make it unreadable
	}
	obj, err := decode(r.Body, object.Object{Revision: r.BodyRevision}.ResourceVersion())
	if err != nil {
		return nil, err
	}
	return json.Marshal(obj)
}
