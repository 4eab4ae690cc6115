// Package archive is what was deleted, and bringing it back.
//
// The store writes a row for every removal, in the transaction that removes
// (store/archive.go says how), and lets it expire. This package reads those
// rows and shows them as the kind ArchivedObject (source.go), and it answers
// the kind Restore: what is to come back is planned (plan.go, pure: parents
// before what they own) and created object by object through the same rules
// as any create (restore.go).
//
// It promises:
//
//   - Nothing is overwritten. An object whose name is taken is skipped.
//   - A restore can be repeated: it goes on where the one before stopped, for
//     whatever reason. That needs no notes: the uid of a restored object
//     follows from the uid that it had (identity.go), so what was restored
//     already is recognized by looking at it.
//   - References follow: owners that come back have new uids, and dependents
//     that come back refer to those. A reference to an owner that is not there
//     would have the collector delete the object at once; it is left out, with
//     a warning, and given back when the owner is restored (relink.go).
//   - Kinds are known without their definitions (name.go).
//
// It knows no HTTP. Begin with [Archive.Kinds].
package archive

import (
	"log/slog"
	"time"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// Options are what an Archive can be given. Zero values are the defaults.
type Options struct {
	Logger *slog.Logger
	Now    func() time.Time
	// Spare is how much of a request's time a restore leaves for writing its
	// answer. Default 5 seconds.
	Spare time.Duration
	// KindWait bounds how long a restore waits until a restored
	// CustomResourceDefinition is served. Default 5 seconds.
	KindWait time.Duration
}

// Archive reads what was removed and restores it. It is safe for concurrent
// use.
type Archive struct {
	db    *sqldb.DB
	store *store.Store
	kinds *kind.Registry
	opts  Options
}

// New makes an Archive. It does no I/O.
func New(db *sqldb.DB, st *store.Store, kinds *kind.Registry, o Options) *Archive {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Spare <= 0 {
		o.Spare = 5 * time.Second
	}
	if o.KindWait <= 0 {
		o.KindWait = 5 * time.Second
	}
	return &Archive{db: db, store: st, kinds: kinds, opts: o}
}
