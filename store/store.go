// Package store keeps objects and the log of their changes, in SQLite or
// PostgreSQL. It promises:
//
//   - Revisions are one gapless sequence in commit order, across all processes
//     on a database. A list at revision n followed by a watch from n misses
//     nothing and repeats nothing.
//   - A write that was answered is durable. One transaction decides a write and
//     does it; lifecycle's rules for deletion run inside it.
//   - A slow watcher is never cut off. Only compaction ends it, with
//     object.Expired.
//
// An SQLite database has one Store at a time; a PostgreSQL database any number.
//
// The package knows no HTTP and only one rule about kinds: objects in a namespace
// need that Namespace. One verb is one file. writer.go collects writes into
// batches, and each batch is one transaction; batch.go says how. Package feed brings
// changes to watchers.
package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/expiry"
	"github.com/exeunt/exeunt/store/feed"
	"github.com/exeunt/exeunt/store/history"
	"github.com/exeunt/exeunt/store/seal"
)

// Options are what a Store needs. Zero values are the defaults.
type Options struct {
	DB     *sqldb.DB
	Logger *slog.Logger     // default: slog.Default
	Now    func() time.Time // default: time.Now

	// KeepFor is how long the states before a change can still be listed and
	// watched. Default 5 minutes.
	KeepFor time.Duration
	// KeepRevisions is how many revisions are kept at most, even when they are
	// younger than KeepFor. Default 200,000.
	KeepRevisions int64
	// CompactEvery is how often the store looks for something to compact.
	// Default 30 seconds.
	CompactEvery time.Duration

	// Keys seal the bodies of some kinds in the database. Nil means no body is sealed.
	Keys *seal.Keys
	// GiveUpKey names a lost key. Open replaces every body that is sealed with it by
	// one without content. Empty: Open refuses a database that needs a lost key.
	GiveUpKey string

	// Archive configures the archive of removed objects. The zero value: none.
	Archive ArchiveOptions

	// History configures the history of objects. The zero value: none.
	History HistoryOptions

	// EventTTL is how long an Event lives after its last write. 0 means until it is
	// deleted.
	EventTTL time.Duration
	// Expiry says when objects expire: each write of an object enqueues its review for that time. Nil
	// means no object expires but Events.
	Expiry Expiry

	// RingEvents and RingBytes bound the changes that are kept in memory for
	// watchers; older changes are read from the database. Defaults 32,768 and
	// 4 MiB.
	RingEvents, RingBytes int
	// CacheBytes bounds the bodies that are kept in memory for reads. Default
	// 18 MiB.
	CacheBytes int
	// PollEvery is how often the store looks for changes of other processes
	// whose notification did not arrive. Default 3 seconds.
	PollEvery time.Duration
}

// Store is an open store. It is safe for concurrent use.
type Store struct {
	db        *sqldb.DB
	log       *slog.Logger
	now       func() time.Time
	opts      Options
	archive   archivist
	writer    *writer
	beginTx   func(context.Context) (databaseTx, error) // DB.Begin; tests replace it
	feed      *feed.Feed
	bodies    *bodies
	heads     *heads
	headReads *headReader // nil on SQLite
	listings  *listingCache
	sealed    seal.Database
	expiry    *expiry.Expiry
	past      *history.History

	follow sync.Mutex // held while the feed is moved forward
	// readLogged is readChanges, for filling the feed. Tests replace it to run a
	// compaction first.
	readLogged func(ctx context.Context, r *WatchRequest, from, to int64) ([]*Event, int64, error)
	nudged     chan struct{} // capacity 1; a value makes the follower read the log

	listeners []func([]*Event) // of OnChange; complete before Run
	limits    Limits           // of SetLimits; set before Run; nil if there is none
	ran       atomic.Bool
	onEvict   atomic.Pointer[func(context.Context, *Tx, Eviction) error] // of OnEvict
	expired   atomic.Int64                                               // objects removed because their TTL ended
	closed    chan struct{}
	closeOnce sync.Once
}

var (
	errStopped = errors.New("the store has been stopped")
	errClosed  = feed.ErrClosed
)

// Open makes a Store that begins at the database's revision and registers the
// keys. Run starts it. The caller closes the database. Error: *seal.WrongKeysError.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.DB == nil {
		return nil, errors.New("open store: no database given")
	}
	setDefaults(&o)
	s := &Store{db: o.DB, log: o.Logger, now: o.Now, opts: o, archive: newArchivist(o.Archive), nudged: make(chan struct{}, 1), closed: make(chan struct{})}
	s.sealed = seal.Database{DB: o.DB, Keys: o.Keys, Logger: o.Logger, Every: o.PollEvery}
	s.expiry, s.past = newExpiry(s), newHistory(s)
	s.readLogged = s.readChanges
	current, _, err := s.revisions(ctx)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s.bodies, s.listings = newBodies(o.CacheBytes), newListingCache(maxCachedEntries)
	s.heads = newHeads()
	if o.DB.Engine() == sqldb.Postgres {
		s.headReads = &headReader{db: o.DB}
	}
	if err := s.sealed.Register(ctx, o.GiveUpKey); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s.feed = feed.New(feed.Options{
		Revision: current, MaxEvents: o.RingEvents, MaxBytes: o.RingBytes, Closed: s.closed, Logger: o.Logger, ReadLog: s.readChanges,
		Compacted: func(ctx context.Context) (int64, error) {
			_, compacted, err := s.revisions(ctx)
			return compacted, err
		},
	})
	s.beginTx = func(ctx context.Context) (databaseTx, error) { return o.DB.Begin(ctx) }
	s.writer = newWriter(o.Logger, s.writeBatch)
	return s, nil
}

func setDefaults(o *Options) {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.KeepFor <= 0 {
		o.KeepFor = 5 * time.Minute
	}
	if o.KeepRevisions <= 0 {
		o.KeepRevisions = 200_000
	}
	if o.CompactEvery <= 0 {
		o.CompactEvery = 30 * time.Second
	}
	if o.RingEvents <= 0 {
		o.RingEvents = 32_768
	}
	if o.RingBytes <= 0 {
		o.RingBytes = 4 << 20
	}
	if o.CacheBytes <= 0 {
		o.CacheBytes = 18 << 20
	}
	if o.PollEvery <= 0 {
		o.PollEvery = 3 * time.Second
	}
}

// OnChange adds a listener, which is called with changes after their commit: at
// once for changes of this process; for changes of other processes when the feed
// has read them, after a notification. Without events: the feed skipped changes. A
// listener may get a change twice, and from several goroutines. It must be quick,
// since writes wait for it. OnChange must be called before Run.
func (s *Store) OnChange(listener func(events []*Event)) {
	s.listeners = append(s.listeners, listener)
}

func (s *Store) changed(events []*Event) {
	for _, listener := range s.listeners {
		listener(events)
	}
}

// Close ends watchers and refuses further writes. Run ends with its context.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		close(s.closed)
		s.writer.close(errClosed)
	})
	return nil
}

// revisions reads the newest and the compacted revision from the database.
func (s *Store) revisions(ctx context.Context) (current, compacted int64, err error) {
	found, err := s.db.Row(ctx, readRevision, nil, &current, &compacted)
	if err == nil && !found {
		err = errors.New("the table has no row")
	}
	if err != nil {
		return 0, 0, fmt.Errorf("read revision: %w", err)
	}
	return current, compacted, nil
}

// Ping returns an error if the database does not answer.
func (s *Store) Ping(ctx context.Context) error {
	_, _, err := s.revisions(ctx)
	return err
}

// countObjects reads the narrowest index of the table.
const countObjects = `SELECT count(*) FROM objects`

// Count returns how many objects there are. It reads an index of all of them.
func (s *Store) Count(ctx context.Context) (n int64, err error) {
	_, err = s.db.Row(ctx, countObjects, nil, &n)
	return n, err
}

// Run writes, follows the log, compacts and seals older bodies until ctx ends.
// Then it finishes the current batch, fails the waiting writes, and returns nil.
// Writes that are submitted before Run wait for it. A Store runs once.
func (s *Store) Run(ctx context.Context) error {
	if s.ran.Swap(true) {
		return errors.New("run store: it has run before")
	}
	var running sync.WaitGroup
	for _, loop := range []func(context.Context){s.writer.run, s.warm, s.runFollower, s.runListener, s.runCompactor, s.runResealer} {
		running.Go(func() { loop(ctx) })
	}
	running.Wait()
	return nil
}

func (s *Store) runResealer(ctx context.Context) {
	if err := s.sealed.Reseal(ctx, s.writer.do); err != nil && ctx.Err() == nil {
		s.log.Error("sealing older bodies again stopped; the next start goes on with it", "error", err)
	}
}

// Sealed has the keys of Secrets.
func (s *Store) Sealed() *seal.Database { return &s.sealed }

// Unavailable reports whether an error of this package means that nothing was done
// because the store is stopping or its database cannot be reached. The client may
// retry, here or at another replica.
func Unavailable(err error) bool {
	var unknown *unknownOutcome
	if errors.As(err, &unknown) {
		return false
	}
	return errors.Is(err, errStopped) || errors.Is(err, errClosed) || sqldb.Unreachable(err)
}

// Full reports whether an error of this package means that the database has no disk
// space left. Nothing was done.
func Full(err error) bool { return sqldb.Full(err) }

// Corrupt reports whether an error of this package means that the database is
// damaged. CorruptAdvice tells the operator what to do.
func Corrupt(err error) bool { return sqldb.Corrupt(err) }

// CorruptAdvice is what to do about a damaged database.
const CorruptAdvice = sqldb.CorruptAdvice

// unknownOutcome is the error of a commit that may have taken place. The client
// must read the object before it retries.
type unknownOutcome struct{ cause error }

func (e *unknownOutcome) Error() string {
	return "the outcome of the write is not known: " + e.cause.Error()
}
func (e *unknownOutcome) Unwrap() error { return e.cause }
