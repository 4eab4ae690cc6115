// Package history keeps earlier versions of objects, in the table history. It promises:
//
//   - Every version that compaction takes out of the log is here, with its time and its author, until it
//     leaves by age or by size, or its kind is left out.
//   - A state that is incomplete is known to be: history_bounds says from which revision on the objects
//     of a kind and a namespace are complete ([Bound]).
//   - A write does nothing for it. Versions come here from compaction, in the background ([History.Move]).
//
// A row has up to 16 versions of one object, compressed with each other, because they differ in a few bytes;
// of a sealed kind it is sealed as a body is. docs/spec/history.md has the races, decision 33 the figures.
// The package knows no kinds and no HTTP. Begin at move.go.
package history

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/seal"
)

// Options are what a History needs.
type Options struct {
	DB *sqldb.DB
	// Transact runs fn in a write transaction, which holds the lock on the revision.
	Transact func(ctx context.Context, fn func(*Tx) error) error
	// Compact adds the statements that delete from the log what the changes after from up to to replaced.
	Compact func(b *sqldb.Batch, from, to int64)
	Now     func() time.Time
	Logger  *slog.Logger
	Keys    *seal.Keys
	// For is how long a version is kept after it was replaced; the annotation history-for of a Namespace
	// overrides it. 0 means that none is kept.
	For time.Duration
	// MaxBytes bounds the history. Each namespace has a fair share of it, in which the oldest versions leave
	// first. 0: 1 GiB.
	MaxBytes int64
	// Exclude has the storage names of the kinds that are left out.
	Exclude []string
	// Full reports whether the disk is full. Versions that compaction meets then are not kept, because that takes
	// space. Set it before the first move. Nil: it never is.
	Full func() bool
}

const defaultSize = 1 << 30

// Tx is a write transaction.
type Tx struct {
	sqldb.Sender
	Engine   sqldb.Engine
	Revision int64
	Moved    int64  // revision.moved
	Sealing  string // name of the sealing key
}

// History keeps earlier versions. It is safe for concurrent use.
type History struct {
	Options
	bytes            atomic.Int64 // when Expire ran last
	tooOld, tooLarge atomic.Int64
}

// New makes a History.
func New(o Options) *History {
	if o.MaxBytes <= 0 {
		o.MaxBytes = defaultSize
	}
	return &History{Options: o}
}

// Keeps reports whether versions of a kind are kept.
func (h *History) Keeps(kind string) bool { return h.For > 0 && !slices.Contains(h.Exclude, kind) }

// Excludes reports whether versions of a kind are not kept while others are.
func (h *History) Excludes(kind string) bool { return slices.Contains(h.Exclude, kind) }

// Left is how many versions this process has let go because of their age, and because of the size of the history.
func (h *History) Left() (tooOld, tooLarge int64) { return h.tooOld.Load(), h.tooLarge.Load() }

// Bytes is how large the history was when this process looked last.
func (h *History) Bytes() int64 { return h.bytes.Load() }
