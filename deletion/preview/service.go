// Package preview answers what a delete would remove ([Service.Preview]), and
// what the guard counts.
//
// The promise: a delete then does what the preview says, if no other client writes
// in between. The package has no rules of its own. It uses gc.Decide for every
// dependent and lifecycle.BeforeDelete for every deletion, as the collector does.
// If the result depends on the order of the collector's reviews, the item says so.
//
// A preview reads one snapshot of the database and writes nothing. It holds one batch of
// bodies at a time, and about 100 bytes for each object but for leaves (leaf.go), which are
// only counted; it reads the items of the requested page again.
//
// The package has no HTTP code: the question is a kind ([Service.Kind]) whose
// objects are answered and never stored. Begin with preview.go; walk.go follows
// the cascade.
package preview

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/store"
)

// Options configure a Service. Zero values are the defaults.
type Options struct {
	Now func() time.Time
	// Batch bounds the objects of one read. One more read may be in memory. Default 500.
	Batch int
	// Objects bounds the objects that a preview follows. Default 1,000,000.
	Objects int
	// MaxCascade is the guard's limit for Namespaces without their own. 0: no limit.
	MaxCascade int64
}

// Service answers previews. It is safe for concurrent use.
type Service struct {
	store *store.Store
	kinds *kind.Registry
	opts  Options

	maxCascade atomic.Int64 // Options.MaxCascade at first
}

// New makes a service.
func New(st *store.Store, kinds *kind.Registry, o Options) (*Service, error) {
	if st == nil || kinds == nil {
		return nil, errors.New("new preview service: store and kinds must be set")
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
	s := &Service{store: st, kinds: kinds, opts: o}
	s.SetMaxCascade(o.MaxCascade)
	return s, nil
}

// SetMaxCascade replaces Options.MaxCascade, for the previews that begin from now on.
func (s *Service) SetMaxCascade(limit int64) { s.maxCascade.Store(limit) }
