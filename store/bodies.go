package store

import "sync"

// bodies keeps recently used bodies by revision. What was stored at a revision
// never changes, so an entry is right for ever, on every replica, and needs no
// invalidation: the database says at which revision an object is, and the
// cache saves reading what it was there.
//
// Two generations make it forget: when the young one is full it becomes the
// old one, and what is not asked for until the next change goes.
type bodies struct {
	half int // bytes that a generation may hold

	mu         sync.RWMutex
	young, old map[int64][]byte // guarded by mu
	size       int              // of young; guarded by mu
}

func newBodies(limit int) *bodies {
	return &bodies{half: limit / 2, young: map[int64][]byte{}}
}

// get returns nil for a body that it does not have.
func (b *bodies) get(revision int64) []byte {
	b.mu.RLock()
	body, young := b.young[revision]
	if !young {
		body = b.old[revision]
	}
	b.mu.RUnlock()
	if body != nil && !young {
		b.put(revision, body)
	}
	return body
}

// put keeps a body, which must not be changed afterwards.
func (b *bodies) put(revision int64, body []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.young[revision]; ok || len(body) > b.half/8 {
		return
	}
	b.young[revision] = body
	b.size += len(body) + 64 // and about what an entry takes
	if b.size > b.half {
		b.old, b.young, b.size = b.young, make(map[int64][]byte, len(b.young)), 0
	}
}

// add keeps the bodies of changes.
func (b *bodies) add(events []*Event) {
	for _, e := range events {
		if e.Type != Removed {
			b.put(e.Object.Revision, e.Object.Body)
		}
	}
}
