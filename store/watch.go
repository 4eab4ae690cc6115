package store

import (
	"context"
	"fmt"
	"time"

	"github.com/exeunt/exeunt/object"
)

// watchEvents is how many events one Next returns at most.
const watchEvents = 256

// progressEvery is how often Next returns without events while the feed moves
// without events for this watcher.
const progressEvery = time.Second

// An idle watcher gets a change at once. A watcher that has just returned events
// first waits for more, so that under load one wake-up, one frame and one system
// call carry several changes. The wait is gatherShare times the number of waiting
// watchers, so that all watchers together wake about 1/gatherShare times a second.
const (
	gatherShare = 200 * time.Microsecond
	gatherLeast = 2 * time.Millisecond
	gatherMost  = 32 * time.Millisecond
)

// WatchRequest says which changes a watcher wants: those after revision From.
// Empty Namespace or Name: all.
type WatchRequest struct {
	Kind, Namespace, Name string
	From                  int64
}

func (r *WatchRequest) matches(k *object.Key) bool {
	return (r.Namespace == "" || r.Namespace == k.Namespace) && (r.Name == "" || r.Name == k.Name)
}

// Watcher delivers changes in revision order, each exactly once. It is for one
// goroutine.
type Watcher struct {
	store    *Store
	topic    *topic
	request  WatchRequest
	pos      int64 // every matching change up to here was delivered
	reported int64 // the upTo that Next returned last
	returned time.Time
	paced    bool // Next has just returned all events there were: it waits for more
	closed   bool
}

// Watch begins a watch. Error: Expired when From has been compacted. If From is in
// the future, the watch waits for it.
func (s *Store) Watch(ctx context.Context, r WatchRequest) (*Watcher, error) {
	if r.Kind == "" || r.From < 0 {
		return nil, object.BadRequestf("watch of kind %q from version %d makes no sense", r.Kind, r.From)
	}
	w := &Watcher{store: s, topic: s.feed.topic(r.Kind), request: r, pos: r.From, reported: r.From, returned: time.Now()}
	if r.From >= s.Revision() {
		return w, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	_, compacted, err := s.revisions(ctx)
	if err != nil {
		return nil, err
	}
	if r.From < compacted {
		return nil, expired(r.From, compacted)
	}
	return w, nil
}

// Next waits for changes and returns some of them. Every change up to revision
// upTo has been delivered. If only other changes happen, Next returns no events
// and a newer upTo, about once a second. Errors: Expired when compaction has
// passed the watcher; ctx's.
func (w *Watcher) Next(ctx context.Context) (events []*Event, upTo int64, err error) {
	if w.closed {
		return nil, w.pos, errClosed
	}
	if w.paced {
		w.paced = false
		if err := w.gather(ctx); err != nil {
			return nil, w.pos, err
		}
	}
	for {
		c := w.store.feed.collect(w.topic, &w.request, w.pos, watchEvents)
		if c.behind {
			c.events, c.upTo, err = w.readLog(ctx, c.upTo)
			if err != nil {
				return nil, w.pos, err
			}
		}
		if c.events, c.upTo, err = readable(c.events, c.upTo); err != nil {
			return nil, w.pos, err
		}
		w.pos = c.upTo
		if len(c.events) > 0 {
			w.paced = len(c.events) < watchEvents
			return c.events, w.report(), nil
		}
		if c.behind {
			continue
		}
		progress, err := w.wait(ctx, c)
		if err != nil {
			return nil, w.pos, err
		}
		if progress {
			return nil, w.report(), nil
		}
	}
}

// readable returns the events before the first one whose body could not be
// unsealed, or the error if that is the first event.
func readable(events []*Event, upTo int64) ([]*Event, int64, error) {
	for i, e := range events {
		if e.unreadable == nil {
			continue
		}
		if i == 0 {
			return nil, 0, fmt.Errorf("watch %s: %w", e.Object.Key, e.unreadable)
		}
		return events[:i], events[i-1].Object.Revision, nil
	}
	return events, upTo, nil
}

// gather waits until gatherTime after the last return of Next.
func (w *Watcher) gather(ctx context.Context) error {
	busy := w.store.feed.gathering.Add(1)
	defer w.store.feed.gathering.Add(-1)
	timer := time.NewTimer(time.Until(w.returned.Add(gatherTime(busy))))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-w.store.closed:
		return errClosed
	}
}

// gatherTime is how long each of busy watchers waits.
func gatherTime(busy int64) time.Duration {
	return min(max(time.Duration(busy)*gatherShare, gatherLeast), gatherMost)
}

func (w *Watcher) report() int64 {
	w.reported, w.returned = w.pos, time.Now()
	return w.pos
}

// wait returns when there may be events for the watcher. It reports true when
// Next should return the feed's progress instead.
func (w *Watcher) wait(ctx context.Context, c collection) (progress bool, err error) {
	timer := time.NewTimer(max(time.Until(w.returned.Add(progressEvery)), 0))
	defer timer.Stop()
	for due, moved := timer.C, (chan struct{})(nil); ; {
		select {
		case <-c.wake:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		case <-w.store.closed:
			return false, errClosed
		case <-due:
			if w.pos > w.reported {
				return true, nil
			}
			// No progress yet. From now on wake when the feed moves, and no
			// longer by the timer.
			due, moved = nil, c.moved
		case <-moved:
			return false, nil
		}
	}
}

// readLog reads the log for a watcher that is behind the feed. It checks the
// compacted revision after the read: if compaction has not passed the watcher by
// then, the read was complete.
func (w *Watcher) readLog(ctx context.Context, to int64) ([]*Event, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	events, upTo, err := w.store.readChanges(ctx, &w.request, w.pos, to)
	if err != nil {
		return nil, 0, err
	}
	_, compacted, err := w.store.revisions(ctx)
	if err != nil {
		return nil, 0, err
	}
	if w.pos < compacted {
		return nil, 0, expired(w.pos, compacted)
	}
	return events, upTo, nil
}

// Close ends the watch. Next must not be running.
func (w *Watcher) Close() { w.closed = true }
