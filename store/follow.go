package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/feed"
	"github.com/exeunt/exeunt/store/seal"
)

const (
	notifyChannel = "exeunt_changes" // also in notifyPostgres
	warmEvents    = 4096             // changes read into the feed when Run begins
	relisten      = time.Second
)

// publish puts a committed batch into the feed. If other processes committed
// before it, publish reads their changes from the log first.
func (s *Store) publish(events []*Event) {
	defer s.changed(events)
	s.bodies.add(events)
	s.heads.add(events)
	s.follow.Lock()
	defer s.follow.Unlock()
	if s.feed.Add(events) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), batchTimeout)
	defer cancel()
	if err := s.catchUp(ctx); err != nil {
		s.log.Warn("change feed is behind", "error", err)
		s.nudge()
	}
}

// commitFailed handles a commit with an unknown outcome.
func (s *Store) commitFailed(err error) {
	s.log.Error("commit failed", "error", err)
	s.heads.forget()
	s.nudge()
}

// nudge makes the follower read the log soon.
func (s *Store) nudge() {
	select {
	case s.nudged <- struct{}{}:
	default: // it will already
	}
}

// runFollower adds the commits of all processes to the feed.
func (s *Store) runFollower(ctx context.Context) {
	ticker := time.NewTicker(s.opts.PollEvery)
	defer ticker.Stop()
	for {
		s.follow.Lock()
		err := s.catchUp(ctx)
		s.follow.Unlock()
		if err != nil && ctx.Err() == nil {
			s.log.Warn("change feed is behind", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-s.nudged:
		}
	}
}

// runListener receives the notifications of other replicas' commits. While it has
// no connection, the follower's poll replaces it.
func (s *Store) runListener(ctx context.Context) {
	for ctx.Err() == nil {
		err := s.db.Listen(ctx, notifyChannel, func(payload string) {
			revision, err := strconv.ParseInt(payload, 10, 64)
			if err != nil || revision > s.Revision() {
				s.nudge()
			}
		})
		if ctx.Err() != nil {
			return
		}
		s.log.Warn("listening for changes failed", "error", err)
		task.Sleep(ctx, relisten)
	}
}

// catchUp reads the changes that the feed lacks. It skips a gap that is larger
// than the feed, or of which a part is compacted. The caller holds s.follow.
func (s *Store) catchUp(ctx context.Context) error {
	current, compacted, err := s.revisions(ctx)
	if err != nil {
		return err
	}
	if gap := current - s.Revision(); gap > int64(s.opts.RingEvents) || gap > 0 && compacted > s.Revision() {
		s.skip(current)
		return nil
	}
	for s.Revision() < current {
		from := s.Revision()
		events, _, err := s.readLogged(ctx, nil, from, current)
		if err != nil {
			return err
		}
		_, compacted, err := s.revisions(ctx)
		if err != nil {
			return err
		}
		if compacted > from {
			s.skip(current)
			return nil
		}
		if len(events) == 0 || !s.feed.Add(events) {
			return fmt.Errorf("the log has no revision %d", from+1)
		}
		s.heads.add(events)
		s.changed(events)
	}
	return nil
}

// skip moves the feed to a revision without the changes up to it.
func (s *Store) skip(revision int64) {
	s.feed.Skip(revision)
	s.heads.forget()
	s.changed(nil)
}

// warm fills the feed with the newest changes, so that watchers that reconnect
// after a restart do not all read the log. It runs in the background: new changes
// follow behind, and until it is done watchers read the log.
func (s *Store) warm(ctx context.Context) {
	if err := s.readBack(ctx, s.feed.Begin()-1); err != nil && ctx.Err() == nil {
		s.log.Warn("recent changes are not in memory", "error", err)
	}
}

// readBack reads the changes up to revision last into the feed.
func (s *Store) readBack(ctx context.Context, last int64) error {
	_, compacted, err := s.revisions(ctx)
	if err != nil {
		return err
	}
	from := max(last-int64(min(warmEvents, s.opts.RingEvents)), compacted, 0)
	if _, err := s.db.Row(ctx, readLogStart, []any{from, last, s.opts.RingBytes}, &from); err != nil {
		return err
	}
	var all []*Event
	for upTo := from; upTo < last; {
		var events []*Event
		if events, upTo, err = s.readLogged(ctx, nil, upTo, last); err != nil {
			return err
		}
		all = append(all, events...)
	}
	if _, compacted, err = s.revisions(ctx); err != nil || compacted > from {
		return err // compacted meanwhile: some may be missing
	}
	s.feed.Fill(from, last, all)
	return nil
}

// Changes and watches are those of package feed.
type (
	Event        = feed.Event
	EventType    = feed.EventType
	WatchRequest = feed.Request
	Watcher      = feed.Watcher
)

// The types of events.
const (
	Created = feed.Created
	Updated = feed.Updated
	Removed = feed.Removed
)

// Watch is feed.Feed.Watch.
func (s *Store) Watch(ctx context.Context, r WatchRequest) (*Watcher, error) {
	return s.feed.Watch(ctx, r)
}

// Follow is feed.Feed.Follow.
func (s *Store) Follow(ctx context.Context, r WatchRequest, handle func([]*Event) error) error {
	return s.feed.Follow(ctx, r, handle)
}

// Keep is feed.Feed.Keep.
func (s *Store) Keep(ctx context.Context, log *slog.Logger, failed string, work func(from int64) error) error {
	return s.feed.Keep(ctx, log, failed, work)
}

// WakeOn is feed.Feed.WakeOn.
func (s *Store) WakeOn(ctx context.Context, kind string, wake func()) { s.feed.WakeOn(ctx, kind, wake) }

// Since is feed.Feed.Since.
func (s *Store) Since(revision int64) []*Event { return s.feed.Since(revision) }

// Revision is the newest revision that watchers can have seen.
func (s *Store) Revision() int64 { return s.feed.Revision() }

// Removed is Feed.Removed.
func (s *Store) Removed() int64 { return s.feed.Removed() }

// Limits of one read of the log, in events and bytes. They bound the memory of a
// watcher that is far behind, also while its client does not read.
const (
	logEvents = 256
	logBytes  = 1 << 20
)

// readChanges reads changes in (from, to], in order. It stops early at logEvents
// or logBytes; upTo is the revision that it reached. r selects the changes of one
// watch; nil means all.
func (s *Store) readChanges(ctx context.Context, r *WatchRequest, from, to int64) (events []*Event, upTo int64, err error) {
	statement, args := readLog, []any{from, to, logEvents}
	if r != nil {
		statement, args = readLogOf, append(args, r.Kind, r.Namespace, r.Name)
	}
	size := 0
	err = sqldb.Each(ctx, s.db, func(row sqldb.Row) error {
		if size >= logBytes {
			return sqldb.ErrEnough
		}
		e, err := scanEvent(row, s.opts.Keys)
		if err == nil {
			events, size = append(events, e), size+e.Size()
		}
		return err
	}, statement, args...)
	if err != nil {
		return nil, 0, fmt.Errorf("read log: %w", err)
	}
	if len(events) == logEvents || size >= logBytes {
		to = events[len(events)-1].Object.Revision
	}
	return events, to, nil
}

// scanEvent reads an event. A body that cannot be unsealed is missing, and the watchers of that
// object get the error from the event; the feed continues for all others.
func scanEvent(row sqldb.Row, keys *seal.Keys) (*Event, error) {
	e := &Event{}
	o := &e.Object
	var body, before []byte
	if err := row.Scan(&o.Revision, &e.Type, &o.UID, &o.Kind, &o.Namespace, &o.Name, &body, &before); err != nil {
		return nil, err
	}
	var errs [2]error
	sealed := seal.Of(o)
	body, errs[0] = keys.Open(sealed, body)
	before, errs[1] = keys.Open(sealed, before)
	e.Unreadable = errors.Join(errs[:]...)
	switch e.Type {
	case Removed:
		o.Body = before
	case Updated:
		o.Body, e.Previous = body, before
	default:
		o.Body = body
	}
	return e, nil
}

// Changes calls visit with the changes in (from, to], in order, as the transaction sees them: those of a kind, or all if that is
// empty.
func (r *Reader) Changes(ctx context.Context, kind string, from, to int64, visit func(*Event)) error {
	statement, args := readLog, []any{from, to, to - from}
	if kind != "" {
		statement, args = readLogOf, append(args, kind, "", "")
	}
	return r.rows(ctx, func(row sqldb.Row) error {
		e, err := scanEvent(row, r.keys)
		if err == nil {
			visit(e)
		}
		return err
	}, statement, args...)
}
