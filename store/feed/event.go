package feed

import (
	"sync"
	"sync/atomic"

	"github.com/exeunt/exeunt/object"
)

// EventType says what happened to an object. The values are stored.
type EventType int

// The types of events.
const (
	Created EventType = iota + 1
	Updated
	Removed
)

// Event is one change to one object. Events are shared by all watchers and
// must not be changed.
type Event struct {
	Type EventType
	// Object is the state after the change. For Removed it is the last body,
	// at the revision of the removal.
	Object object.Object
	// Previous is the body before an update.
	Previous []byte

	Unreadable error // a body could not be unsealed; set once

	cache atomic.Pointer[cached] // linked list; entries are added at the head and never removed
	mu    sync.Mutex             // held while make runs
}

type cached struct {
	key   any
	value []byte
	next  *cached
}

// Cached returns the cached value for key, and calls make once to create it.
// Encoders use it to encode an event once for all watchers. key must be
// comparable; make must not call Cached.
func (e *Event) Cached(key any, make func() []byte) []byte {
	if c := e.find(key); c != nil {
		return c.value
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.find(key); c != nil {
		return c.value
	}
	c := &cached{key: key, value: make(), next: e.cache.Load()}
	e.cache.Store(c)
	return c.value
}

func (e *Event) find(key any) *cached {
	for c := e.cache.Load(); c != nil; c = c.next {
		if c.key == key {
			return c
		}
	}
	return nil
}

// Size is about the bytes that the event takes in memory, with one cached frame.
func (e *Event) Size() int {
	return 2*len(e.Object.Body) + len(e.Previous) + 512
}
