package store

import (
	"context"
	"fmt"
	"time"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/feed"
)

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
	var current, compacted int64
	_, err = sqldb.First(ctx, s, []any{&current, &compacted}, readRevision)
	switch {
	case err != nil:
		return fmt.Errorf("read revision: %w", err)
	case l.revision > current:
		return object.Errorf(object.TooLargeVersion, "Too large resource version: %d, current: %d", l.revision, current)
	case l.revision == 0:
		l.revision = current
	case l.revision < compacted:
		return feed.Expired(l.revision, compacted)
	}
	if err := l.readRun(ctx, s, l.revision < current); err != nil {
		return err
	}
	l.record()
	return nil
}

// readRun reads heads, and the bodies of as many of them as a run may hold.
func (l *Listing) readRun(ctx context.Context, s *Snapshot, past bool) error {
	growth := min(1<<min(l.runs, 8), runGrowth)
	l.runs++
	length := runLength * growth
	if past && l.average > 0 {
		length = runLength * 2 * runGrowth // each run reads all changes since the revision
	}
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
	l.run = l.run[:0]
	statement, args := listHeads, []any{l.request.Kind, l.afterNamespace, l.afterName, l.lastNamespace, l.request.Name}
	switch {
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
