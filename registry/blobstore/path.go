package blobstore

import (
	"crypto/rand"
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
// The store chooses the folder. Then come the time and a random part: paths that
// are made one after the other are near each other in the database's index, where
// random ones would each touch a page of its own.

const (
	folders    = 256
	pathBytes  = 16
	pathLength = len("3f/") + 2*pathBytes
)

func folderName(folder byte) string { return hex.EncodeToString([]byte{folder}) }

// newPath makes a path in a folder. 72 random bits do not come twice in a
// millisecond.
func newPath(folder byte) string {
	var b [pathBytes]byte
	_, _ = rand.Read(b[:]) // never fails: it would end the program
	binary.BigEndian.PutUint64(b[:8], uint64(time.Now().UnixMilli())<<8|uint64(b[7]))
	b[0] = folder
	name := hex.EncodeToString(b[:])
	return name[:2] + "/" + name
}

// checkPath refuses all but what newPath makes, so nothing outside the store
// can be named.
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

// claims keeps the writers of one process apart. The zero value is ready.
type claims struct {
	mu   sync.Mutex
	held map[string]bool // paths that have a writer; guarded by mu
}

// take reports whether nobody had the path, and the caller has it now.
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
