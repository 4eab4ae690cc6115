package blobstore

import (
	"encoding/hex"
	"path/filepath"
	"sync"
	"sync/atomic"
)

// filesInARow is how many uploads in a row go to the same folder. Uploads that
// come together share its sync, and the file system writes one folder's blocks
// where it would otherwise write those of many.
const filesInARow = 1024

// rotation says to which folder the next upload goes.
type rotation struct{ made atomic.Uint64 }

func (r *rotation) next() byte {
	return byte(r.made.Add(1) / filesInARow)
}

// folderSyncs syncs folders, for all that wait for the same one at once.
type folderSyncs struct{ folders [folders]groupSync }

func (s *folderSyncs) sync(root string, folder byte) error {
	return s.folders[folder].do(func() error {
		return syncFolder(filepath.Join(root, folderName(folder)))
	})
}

// groupSync runs one function for all who ask at once. Whoever asks gets the
// outcome of a run that began after it asked: so those who come while one runs
// share the one after it.
type groupSync struct {
	turn sync.Mutex // held by the one that runs

	mu   sync.Mutex
	next *wave // has not begun; guarded by mu
}

type wave struct {
	done chan struct{}
	err  error // set before done is closed
}

func (g *groupSync) do(run func() error) error {
	g.mu.Lock()
	w := g.next
	leads := w == nil
	if leads {
		w = &wave{done: make(chan struct{})}
		g.next = w
	}
	g.mu.Unlock()
	if !leads {
		<-w.done
		return w.err
	}
	g.turn.Lock()
	defer g.turn.Unlock()
	g.mu.Lock()
	g.next = nil // whoever comes now is too late for this run
	g.mu.Unlock()
	w.err = run()
	close(w.done)
	return w.err
}

// folderOf is the folder of a path that the store has made.
func folderOf(path string) byte {
	folder, err := hex.DecodeString(path[:2])
	if err != nil {
		panic("blobstore: path " + path + " was not checked")
	}
	return folder[0]
}
