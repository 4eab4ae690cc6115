package store

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

	unreadable error // a body did not open; set once

	cache atomic.Pointer[cached] // a list that only grows, at its head
	mu    sync.Mutex             // held while something is made
}

type cached struct {
	key   any
	value []byte
	next  *cached
}

// Cached returns what make returned for this key the first time, and calls it
// if there was no first time yet. Encoders use it to encode an event once for
// all watchers. key must be comparable; make must not call Cached.
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

// size is about what the event takes in memory, with one frame for watchers.
func (e *Event) size() int {
	return 2*len(e.Object.Body) + len(e.Previous) + 512
}
