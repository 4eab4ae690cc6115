package registry

import "hash"

// hashing hashes the buffers of an upload in a goroutine, while they are written
// and the next one is read. Hashing takes about as long as everything else
// together.
type hashing struct {
	todo chan []byte            // slices of the buffers
	free chan *[copyBuffer]byte // buffers to read into
	held []*[copyBuffer]byte    // all buffers
	done chan struct{}          // closed when all bytes are hashed
}

// startHashing starts the goroutine; end must follow.
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

// end waits until all bytes are hashed.
func (h *hashing) end() {
	close(h.todo)
	<-h.done
	for _, buffer := range h.held {
		buffers.Put(buffer)
	}
}
