package store

import (
	"context"
	"fmt"
	"time"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/feed"
)

// lastNamespace sorts after every namespace.
const lastNamespace = "\U0010FFFF"

// ListRequest says which objects to list. Empty Namespace or Name: all.
type ListRequest struct {
	Kind, Namespace, Name string

	// Limit is how many objects that match to return. 0 means all.
	Limit int
	// Revision is the revision to list the state of. 0 means the newest.
	Revision int64
	// Past allows a revision that is compacted, if the history has the state.
	Past bool
	// AfterNamespace and AfterName are where the page before ended.
	AfterNamespace, AfterName string
	// Match reports whether an object is wanted. Its error ends the listing. Nil means all are.
	Match func(*object.Object) (bool, error)
}

// Listing streams objects in order of (namespace, name), all as of one revision.
// It reads them in runs and holds no connection or transaction between two calls,
// because its user may write each object to a client that does not read. It is
// for one goroutine.
type Listing struct {
	store    *Store
	ctx      context.Context // of the request; a Listing does not outlive it
	request  ListRequest
	revision int64 // 0 before the first run: the newest

	afterNamespace, afterName string // where the next run begins
	lastNamespace             string // where the last run ends

	run     []object.Object // the objects of the current run
	at      int             // next object in run
	last    bool            // run is the last one
	runs    int             // how many runs were read
	bytes   int             // of the bodies in run; 0 for bodies of the cache
	average int             // bytes per body in the last run; 0 if not known
	object  object.Object

	fromCache   bool     // nothing is read from the database
	entries     []entry  // fromCache: not yet in a run
	entryBodies [][]byte // of entries
	left        int      // fromCache: how many objects come after the limit

	recording *cachedListing // collects what is read, for the next list; nil if not wanted
	recorded  int            // how many objects of this page are in it

	moved int64   // as in the last snapshot; states from before are in the history
	rows  []int64 // for a state from before: the rows of the history with the objects of run; 0 if the log has it

	count int
	more  bool
	ended bool
	err   error
}

// List begins a listing and reads its first run. Errors: Expired when the
// revision has been compacted; TooLargeVersion when it is in the future.
func (s *Store) List(ctx context.Context, r ListRequest) (*Listing, error) {
	if r.Kind == "" || r.Revision < 0 || r.Limit < 0 {
		return nil, object.BadRequestf("list of kind %q at version %d with limit %d makes no sense", r.Kind, r.Revision, r.Limit)
	}
	l := &Listing{store: s, ctx: ctx, request: r, revision: r.Revision}
	l.afterNamespace, l.afterName, l.lastNamespace = r.AfterNamespace, r.AfterName, lastNamespace
	if r.Namespace != "" {
		l.lastNamespace = r.Namespace
		if l.afterNamespace < r.Namespace {
			l.afterNamespace, l.afterName = r.Namespace, ""
		}
	}
	var err error
	if l.fromCache, err = s.listFromCache(ctx, l); err == nil && !l.fromCache {
		if !r.Past {
			l.startRecording()
		}
		err = l.read()
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", r.Kind, err)
	}
	return l, nil
}

// Revision is the revision whose state is listed.
func (l *Listing) Revision() int64 { return l.revision }

// Next moves to the next object that matches. False: the end, the limit, or an
// error.
func (l *Listing) Next() bool {
	if l.ended || l.err != nil {
		return false
	}
	for {
		if l.at == len(l.run) {
			if l.last {
				l.ended = true
				return false
			}
			if l.err = l.read(); l.err != nil {
				return false
			}
			continue
		}
		l.object = l.run[l.at]
		l.at++
		if l.request.Match != nil {
			wanted, err := l.request.Match(&l.object)
			if l.err = err; err != nil {
				return false
			}
			if !wanted {
				continue
			}
		}
		if l.request.Limit > 0 && l.count == l.request.Limit {
			l.more, l.ended = true, true
			return false
		}
		l.count++
		return true
	}
}

// Bytes is how many bytes of bodies the listing holds in memory.
func (l *Listing) Bytes() int { return l.bytes }

// Object is the object Next moved to. Its Body is shared and must not be
// changed.
func (l *Listing) Object() object.Object { return l.object }

// More says, after Next returned false, that the limit cut off at least one
// object that matches.
func (l *Listing) More() bool { return l.more }

// Left is how many objects come after the limit, if the listing knows it.
func (l *Listing) Left() (n int64, known bool) { return int64(l.left), l.fromCache }

// Err is the error that ended the listing, if one did: Expired when compaction
// passed the listing's revision between two runs.
func (l *Listing) Err() error {
	if l.err != nil {
		return fmt.Errorf("list %s: %w", l.request.Kind, l.err)
	}
	return nil
}

// The first run of a listing has up to runLength objects and runBytes of bodies.
// Each later run may be twice as large as the one before, up to runGrowth times
// the first. So a client that stops reading early holds a small run in memory,
// and a client that reads a long list costs few snapshots.
const (
	runLength = 512
	runBytes  = 512 << 10
	runGrowth = 8
	// firstBodies is how many bodies are read before their size is known.
	firstBodies = 16
	// readTimeout bounds the read of one run, also in requests without a timeout.
	readTimeout = 30 * time.Second
)

// read reads the next run in a snapshot of its own. The first snapshot sets the
// listing's revision. If the store has newer revisions by now, a later run reads
// the state as of the listing's revision from the log.
func (l *Listing) read() error {
	if l.fromCache {
		l.readEntries()
		return nil
	}
	ctx, cancel := context.WithTimeout(l.ctx, readTimeout)
	defer cancel()
	s, err := l.store.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	current, err := l.checkRevision(ctx, s)
	if err != nil {
		return err
	}
	if err := l.readRun(ctx, s, l.revision < current); err != nil {
		return err
	}
	l.record()
	return nil
}

// checkRevision refuses a revision that cannot be read, and returns the newest one.
func (l *Listing) checkRevision(ctx context.Context, s *Snapshot) (current int64, err error) {
	var compacted int64
	_, err = sqldb.First(ctx, s, []any{&current, &compacted}, readRevision)
	switch {
	case err != nil:
		err = fmt.Errorf("read revision: %w", err)
	case l.revision > current:
		err = object.Errorf(object.TooLargeVersion, "Too large resource version: %d, current: %d", l.revision, current)
	case l.revision == 0:
		l.revision = current
	case l.request.Past: // also in the log: it still has what was purged
		err = l.checkPast(ctx, s)
	case l.revision < compacted:
		err = feed.Expired(l.revision, compacted)
	}
	return current, err
}

// readRun reads heads, and the bodies of as many of them as a run may hold.
func (l *Listing) readRun(ctx context.Context, s *Snapshot, past bool) error {
	growth := min(1<<min(l.runs, 8), runGrowth)
	l.runs++
	if past {
		growth = runGrowth // each run reads all changes since the revision
	}
	length := runLength * growth
	if l.average > 0 {
		length = min(length, runBytes*growth/4*5/l.average+firstBodies) // more would not fit
	}
	if left := l.request.Limit - l.count; l.request.Limit > 0 && l.request.Match == nil && left < length {
		length = left + 1 // one more, to know whether the list goes on
	}
	if err := l.readHeads(ctx, s, length, past); err != nil {
		return err
	}
	whole := len(l.run)
	if err := l.readBodies(ctx, s, runBytes*growth); err != nil {
		return err
	}
	l.at, l.last = 0, whole < length && len(l.run) == whole
	if n := len(l.run); n > 0 {
		l.afterNamespace, l.afterName = l.run[n-1].Namespace, l.run[n-1].Name
	}
	return nil
}

func (l *Listing) readHeads(ctx context.Context, s *Snapshot, length int, past bool) error {
	clear(l.run) // else a shorter run keeps the bodies behind it in memory
	l.run, l.rows = l.run[:0], l.rows[:0]
	statement, args := listHeads, []any{l.request.Kind, l.afterNamespace, l.afterName, l.lastNamespace, l.request.Name}
	switch {
	case past && l.revision < l.moved:
		return l.readPast(ctx, s, args, length)
	case past:
		statement, args = listAt, append(args, l.revision)
	case l.request.Namespace != "" && l.request.Name != "":
		statement = listHead
	}
	return sqldb.Each(ctx, s, func(row sqldb.Row) error {
		l.run = append(l.run, object.Object{Key: object.Key{Kind: l.request.Kind}})
		o := &l.run[len(l.run)-1]
		return row.Scan(&o.Namespace, &o.Name, (*string)(&o.UID), &o.Revision)
	}, statement, append(args, int64(length))...)
}

// readBodies fills in the bodies of the run. It cuts the run after the object at
// which the bodies reach the limit, in bytes.
func (l *Listing) readBodies(ctx context.Context, s *Snapshot, limit int) error {
	size := 0
	for from := 0; from < len(l.run); {
		n := firstBodies
		if l.average > 0 {
			n = max((limit-size)/l.average, 1)
		}
		to := min(from+n, len(l.run))
		if err := l.fillPast(ctx, s, from, to); err != nil {
			return err
		}
		if err := l.fill(ctx, s, l.run[from:to]); err != nil {
			return err
		}
		for i := from; i < to; i++ {
			if size += len(l.run[i].Body); size >= limit {
				clear(l.run[i+1:])
				l.run = l.run[:i+1]
				break
			}
		}
		from = to
		l.average = max(size/min(to, len(l.run)), 1)
	}
	l.bytes = size
	return nil
}

// fill reads the bodies that the cache does not have.
func (l *Listing) fill(ctx context.Context, s *Snapshot, run []object.Object) error {
	var missing []int64
	for i := range run {
		if run[i].Body != nil {
			continue
		}
		if run[i].Body = l.store.bodies.get(run[i].Revision); run[i].Body == nil {
			missing = append(missing, run[i].Revision)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	found := make(map[int64][]byte, len(missing))
	var revision int64
	var body []byte
	err := sqldb.Each(ctx, s, func(row sqldb.Row) error {
		err := row.Scan(&revision, &body)
		found[revision] = body
		return err
	}, readBodies[s.engine], sqldb.List(s.engine, missing))
	if err != nil {
		return fmt.Errorf("read bodies: %w", err)
	}
	for i := range run {
		if o := &run[i]; o.Body == nil {
			if o.Body = found[o.Revision]; o.Body == nil {
				return fmt.Errorf("%s has no body at revision %d", o.Key, o.Revision)
			}
			if err := l.store.opts.Keys.Unseal(o); err != nil {
				return err
			}
			l.store.bodies.put(o.Revision, o.Body)
		}
	}
	return nil
}
