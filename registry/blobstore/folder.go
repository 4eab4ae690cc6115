package blobstore

import (
	"encoding/hex"
	"path/filepath"
	"sync"
	"sync/atomic"
)

// filesInARow is how many uploads in a row use the same folder. Concurrent
// uploads share its sync, and the file system writes the blocks of one folder in
// place of many.
const filesInARow = 1024

// rotation chooses the folder of the next upload.
type rotation struct{ made atomic.Uint64 }

func (r *rotation) next() byte {
	return byte(r.made.Add(1) / filesInARow)
}

// folderSyncs syncs folders. Uploads that wait for the same folder share one
// sync.
type folderSyncs struct{ folders [folders]groupSync }

func (s *folderSyncs) sync(root string, folder byte) error {
	return s.folders[folder].do(func() error {
		return syncFolder(filepath.Join(root, folderName(folder)))
	})
}

// groupSync runs one function for all concurrent calls of do. Each call returns
// the result of a run that began after the call. So the calls that arrive during
// a run share the next run.
type groupSync struct {
	turn sync.Mutex // held during a run

	mu   sync.Mutex
	next *groupRun // the next run; guarded by mu
}

type groupRun struct {
	done chan struct{}
	err  error // set before done is closed
}

func (g *groupSync) do(run func() error) error {
	g.mu.Lock()
	w := g.next
	leads := w == nil
	if leads {
		w = &groupRun{done: make(chan struct{})}
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
	g.next = nil // later calls need another run
	g.mu.Unlock()
	w.err = run()
	close(w.done)
	return w.err
}

// folderOf returns the folder of a path that the store made.
func folderOf(path string) byte {
	folder, err := hex.DecodeString(path[:2])
	if err != nil {
		panic("blobstore: path " + path + " was not checked")
	}
	return folder[0]
}
