// Package preview answers what people ask before and during a deletion: what
// would it take with it ([Service.Preview]), and why is this still here
// ([Service.Report])? The name is for the first question; the second is the
// same knowledge, asked too late.
//
// The promise of a preview: what it predicts is what a delete then does, if
// nobody else writes meanwhile. It decides nothing by itself. Every object that
// an owner leaves behind is judged by gc.Decide, every deletion by
// lifecycle.BeforeDelete, as the collector does. Where the order in which the
// collector comes to things decides, the item says so.
//
// Both read one snapshot of the database and write nothing. A preview of
// 100,000 objects holds a batch of bodies at a time, and of each object about a
// hundred bytes; items are read again, for the page that is asked for.
//
// The package knows no HTTP: questions are kinds ([Service.Kinds]) whose
// objects are answered and never stored. Begin with preview.go; walk.go is how
// a cascade is followed.
package preview

import (
	"errors"
	"time"

	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
)

// Options are what a Service can be given. Zero values are the defaults.
type Options struct {
	Now func() time.Time
	// Batch bounds the objects that are held in memory at once. Default 500.
	Batch int
	// Objects bounds the objects that a preview follows. Default 1,000,000.
	Objects int
	// MaxCascade is the guard's limit where a Namespace has none. 0: none.
	MaxCascade int64
	// CollectorOff says that no collector runs in this process.
	CollectorOff bool
	// Unseal opens the body of an object as it was read from the database. Nil:
	// none is sealed.
	Unseal func(*object.Object) error
	// OrphanWait is the collector's. Default gc.DefaultOrphanWait.
	OrphanWait time.Duration
	// Keepers are the parts of this server that hold objects, by the finalizer
	// that they hold them with.
	Keepers map[string]Keeper
}

// Service answers. It is safe for concurrent use.
type Service struct {
	db    *sqldb.DB
	kinds *kind.Registry
	opts  Options
}

// New makes a service that reads a database and knows the kinds.
func New(db *sqldb.DB, kinds *kind.Registry, o Options) (*Service, error) {
	if db == nil || kinds == nil {
		return nil, errors.New("foresight: needs a database and kinds")
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
