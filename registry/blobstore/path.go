package blobstore

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/exeunt/exeunt/internal/durable"
)

// Paths are the same in every store:
//
//	3f/3f0198a1c2d3e4…   32 hexadecimal digits, in the folder of the first two
//
// The store chooses the folder. The time and a random part follow. Consecutive
// paths are therefore close together in the database's index; random paths would
// touch one page each.

const (
	folders    = 256
	pathBytes  = 16
	pathLength = len("3f/") + 2*pathBytes
)

func folderName(folder byte) string { return hex.EncodeToString([]byte{folder}) }

// newPath makes a path in a folder. 72 random bits keep the paths of one
// millisecond distinct.
func newPath(folder byte) string {
	var b [pathBytes]byte
	_, _ = rand.Read(b[:]) // never fails: it would crash the program
	binary.BigEndian.PutUint64(b[:8], uint64(time.Now().UnixMilli())<<8|uint64(b[7]))
	b[0] = folder
	name := hex.EncodeToString(b[:])
	return name[:2] + "/" + name
}

// checkPath accepts only the form that newPath makes, so no path leads outside
// the store.
func checkPath(path string) error {
	ok := len(path) == pathLength && path[2] == '/' && path[:2] == path[3:5]
	for i := 3; ok && i < len(path); i++ {
		c := path[i]
		ok = '0' <= c && c <= '9' || 'a' <= c && c <= 'f'
	}
	if !ok {
		return fmt.Errorf("%q: %w", path, ErrPath)
	}
	return nil
}

// claims gives each path at most one writer of this process. The zero value is
// ready.
type claims struct {
	mu   sync.Mutex
	held map[string]bool // paths that have a writer; guarded by mu
}

// take claims a path and reports whether it was free.
func (c *claims) take(path string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[path] {
		return false
	}
	if c.held == nil {
		c.held = map[string]bool{}
	}
	c.held[path] = true
	return true
}

func (c *claims) free(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, path)
}

// PathOf makes the path of content from a unique name of it, its digest for instance.
// It is for copies of blobs: the copies of the same content have the same path.
func PathOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	hexed := hex.EncodeToString(sum[:pathBytes])
	return hexed[:2] + "/" + hexed
}

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
		return durable.SyncFolder(filepath.Join(root, folderName(folder)))
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
