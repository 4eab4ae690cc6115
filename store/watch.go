package store

import (
	"context"
	"fmt"
	"time"

	"github.com/exeunt/exeunt/object"
)

// watchEvents bounds what one Next returns.
const watchEvents = 256

// progressEvery is how often Next returns without events when there are none
// for it but the feed has moved.
const progressEvery = time.Second

// A watcher that was idle hears of a change at once. One that has just been told
// something lets more come together first, so that under load one wake-up, one
// frame and one system call carry several changes instead of one. How long it
// waits depends on how many do: all of them together are told about
// 1/gatherShare times a second, however many they are.
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
	pos      int64 // everything up to here has been delivered, or does not match
	reported int64 // the upTo that Next returned last
	returned time.Time
	paced    bool // Next has just returned all there was: the next ones may gather
	closed   bool
}

// Watch begins a watch. Error: Expired when From has been compacted. A revision
// in the future is waited for.
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

// Next waits for changes and returns some. upTo: every change up to it has been
// delivered. When there is nothing for this watcher but other changes happen,
// it returns no events and a newer upTo, about once a second. Error: Expired
// when compaction overtook the watcher; ctx's.
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

// readable is the events before the first one whose body did not open. Error:
// it is the first.
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

// gather lets changes come together, counted from the last return.
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

// gatherTime is how long each of some busy watchers waits.
func gatherTime(busy int64) time.Duration {
	return min(max(time.Duration(busy)*gatherShare, gatherLeast), gatherMost)
}

func (w *Watcher) report() int64 {
	w.reported, w.returned = w.pos, time.Now()
	return w.pos
}

// wait returns when there may be something for the watcher. It reports true
// when it is time to say how far the feed has moved.
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
			// Nothing to say yet. From now on any move is worth waking for,
			// and without one there is no timer to wake for either.
			due, moved = nil, c.moved
		case <-moved:
			return false, nil
		}
	}
}

// readLog reads for a watcher that is behind the feed. It looks at what has
// been compacted after it has read: if that is not past the watcher even then,
// nothing was missing from what it read.
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
