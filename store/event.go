package store

import (
	"context"
	"log/slog"
	"time"

	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store/feed"
)

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

// Keep repeats work until ctx ends, and then returns nil. Work brings something up to date and then follows the changes
// after the revision that it is given, so that it sees every change in one of the two ways. Keep logs its error, and waits a
// second before the next try; it does not wait if the feed went on without the work.
func (s *Store) Keep(ctx context.Context, log *slog.Logger, failed string, work func(from int64) error) error {
	for ctx.Err() == nil {
		err := work(s.Revision())
		if err == nil || ctx.Err() != nil || object.Is(err, object.Expired) {
			continue
		}
		log.Warn(failed+"; the next try is in a second", "error", err)
		task.Sleep(ctx, time.Second)
	}
	return nil
}

// WakeOn is feed.Feed.WakeOn.
func (s *Store) WakeOn(ctx context.Context, kind string, wake func()) { s.feed.WakeOn(ctx, kind, wake) }

// Since is feed.Feed.Since.
func (s *Store) Since(revision int64) []*Event { return s.feed.Since(revision) }

// Revision is the newest revision that watchers can have seen.
func (s *Store) Revision() int64 { return s.feed.Revision() }
