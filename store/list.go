package store

import (
	"context"
	"fmt"

	"github.com/exeunt/exeunt/object"
)

// lastNamespace sorts after every namespace.
const lastNamespace = "\U0010FFFF"

// ListRequest says which objects to list. Empty Namespace or Name: all.
type ListRequest struct {
	Kind, Namespace, Name string

	// Limit is how many objects that match to return. 0: all.
	Limit int
	// Revision is the revision to list the state of. 0: the newest.
	Revision int64
	// AfterNamespace and AfterName are where the page before ended.
	AfterNamespace, AfterName string
	// Match says whether an object is wanted. Its error ends the listing. Nil: all are.
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
	average int             // bytes per body in the last run; 0: not known
	object  object.Object

	fromCache   bool     // nothing is read from the database
	entries     []entry  // fromCache: not yet in a run
	entryBodies [][]byte // of entries
	left        int      // fromCache: how many objects come after the limit

	recording *cachedListing // collects what is read, for the next list; nil: not wanted
	recorded  int            // how many objects of this page are in it

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
		l.startRecording()
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
