package registry

import "hash"

// hashing hashes the buffers of an upload in a goroutine of its own, while they
// are written and the next one is read: to hash takes about as long as all the
// rest.
type hashing struct {
	todo chan []byte            // cut from the buffers
	free chan *[copyBuffer]byte // to be read into
	held []*[copyBuffer]byte    // all of them
	done chan struct{}          // closed when everything is hashed
}

// startHashing begins; end must follow.
func startHashing(to hash.Hash) *hashing {
	const inTurn = 2 // one is hashed, one is read
	h := &hashing{
		todo: make(chan []byte, inTurn), free: make(chan *[copyBuffer]byte, inTurn), done: make(chan struct{}),
	}
	for range inTurn {
		buffer := buffers.Get().(*[copyBuffer]byte)
		h.held = append(h.held, buffer)
		h.free <- buffer
	}
	go h.run(to)
	return h
}

func (h *hashing) run(to hash.Hash) {
	defer close(h.done)
	for p := range h.todo {
		_, _ = to.Write(p) // a hash never fails
		h.free <- (*[copyBuffer]byte)(p[:copyBuffer])
	}
}

// end waits until everything is hashed.
func (h *hashing) end() {
	close(h.todo)
	<-h.done
	for _, buffer := range h.held {
		buffers.Put(buffer)
	}
}
