// Package preview answers two questions about deletions: what would a delete
// remove ([Service.Preview]), and why does this object still exist
// ([Service.Report])?
//
// The promise of a preview: a delete then does what the preview says, if no other
// client writes in between. The package has no rules of its own. It uses gc.Decide
// for every dependent and lifecycle.BeforeDelete for every deletion, as the
// collector does. If the result depends on the order of the collector's reviews,
// the item says so.
//
// Both read one snapshot of the database and write nothing. A preview of 100,000
// objects holds one batch of bodies at a time, and about 100 bytes for each
// object; it reads the items of the requested page again.
//
// The package has no HTTP code: questions are kinds ([Service.Kinds]) whose
// objects are answered and never stored. Begin with preview.go; walk.go follows
// the cascade.
package preview

import (
	"errors"
	"time"

	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
)

// Options configure a Service. Zero values are the defaults.
type Options struct {
	Now func() time.Time
	// Batch bounds the objects in memory at once. Default 500.
	Batch int
	// Objects bounds the objects that a preview follows. Default 1,000,000.
	Objects int
	// MaxCascade is the guard's limit for Namespaces without their own. 0: no limit.
	MaxCascade int64
	// CollectorOff says that no collector runs in this process.
	CollectorOff bool
	// Unseal decrypts the body of an object from the database. Nil: no body is
	// encrypted.
	Unseal func(*object.Object) error
	// OrphanWait is the collector's option. Default gc.DefaultOrphanWait.
	OrphanWait time.Duration
	// Keepers are the parts of this server that set finalizers, by finalizer.
	Keepers map[string]Keeper
}

// Service answers both questions. It is safe for concurrent use.
type Service struct {
	db    *sqldb.DB
	kinds *kind.Registry
	opts  Options
}

// New makes a service on a database.
func New(db *sqldb.DB, kinds *kind.Registry, o Options) (*Service, error) {
	if db == nil || kinds == nil {
		return nil, errors.New("new preview service: database and kinds must be set")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Batch <= 0 {
		o.Batch = 500
	}
	if o.Objects <= 0 {
		o.Objects = 1_000_000
	}
	if o.OrphanWait == 0 {
		o.OrphanWait = gc.DefaultOrphanWait
	}
	return &Service{db: db, kinds: kinds, opts: o}, nil
}
