package store

import (
	"context"

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

// WakeOn is feed.Feed.WakeOn.
func (s *Store) WakeOn(ctx context.Context, kind string, wake func()) { s.feed.WakeOn(ctx, kind, wake) }

// Since is feed.Feed.Since.
func (s *Store) Since(revision int64) []*Event { return s.feed.Since(revision) }

// Revision is the newest revision that watchers can have seen.
func (s *Store) Revision() int64 { return s.feed.Revision() }
