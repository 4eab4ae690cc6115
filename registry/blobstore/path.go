package blobstore

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"sync"
	"time"
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
