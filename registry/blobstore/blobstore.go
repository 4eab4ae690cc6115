// Package blobstore keeps the registry's bytes. It knows paths and bytes; what
// they are, whether they are complete and who refers to them is the database's
// business.
//
// Every upload lands at a path of its own that was never used before and never
// will be again. So bytes at a path only ever grow, until they are removed for
// good, and whoever removes them need not ask whether somebody has just put
// something else there.
//
// Paths are made by the store. A client never sees one and never gives one; one
// that a store did not make is refused all the same, with [ErrPath].
//
// [Dir] is the implementation in a directory. Another one is accepted when it
// passes the suite in blobstoretest.
package blobstore

import (
	"context"
	"errors"
	"io"
	"time"
)

// The errors that callers tell apart.
var (
	// ErrNotFound: there are no bytes at the path.
	ErrNotFound = errors.New("no bytes at this path")
	// ErrBusy: another writer has the path open.
	ErrBusy = errors.New("another writer has this path open")
	// ErrPath: this is not a path that the store makes.
	ErrPath = errors.New("not a path of the blob store")
	// ErrRange: the offset is negative or after the end.
	ErrRange = errors.New("offset outside the bytes")
)

// Store keeps bytes. It is safe for concurrent use.
type Store interface {
	// Create begins an upload at a path of its own. Nothing is stored before
	// the first Write or Sync, so a caller that records Path before it writes
	// never leaves bytes behind that nobody knows, wherever it dies.
	Create(ctx context.Context) (Writer, error)
	// Resume goes on with an upload, after all that is stored of it. An upload
	// that has stored nothing yet is resumed with size 0. After a crash Size
	// can be less than what was written but not synced: compare it. Only one
	// writer at a time may have a path: ErrBusy.
	Resume(ctx context.Context, path string) (Writer, error)
	// Open reads from an offset to the end. The offset may be the end itself;
	// after it, ErrRange. Bytes that are removed meanwhile are read to the end,
	// or the reader fails: it never reads anything else. ErrNotFound.
	Open(ctx context.Context, path string, offset int64) (io.ReadCloser, error)
	// Stat is the number of bytes at a path. ErrNotFound.
	Stat(ctx context.Context, path string) (size int64, err error)
	// Remove removes the bytes at a path, or finds none: both are success. When
	// it has returned, they do not come back after a power cut. A store that
	// knows of a writer at the path may refuse with ErrBusy: that writer could
	// store something afterwards which nobody knows of.
	Remove(ctx context.Context, path string) error
}

// Walker is a store that can list what it holds.
type Walker interface {
	// Walk calls fn for each path, in no order, with its size and the time of
	// its last write. What comes or goes meanwhile may be missed. It stops at
	// the first error of fn and returns it.
	Walk(ctx context.Context, fn func(path string, size int64, written time.Time) error) error
}

// Writer appends to an upload. It is for one goroutine.
type Writer interface {
	// Write appends. After an error the upload holds any part of p, and Size
	// says how much.
	io.Writer
	// Path names the upload. It is known, and stays the same, from the start.
	Path() string
	// Size is the number of bytes of the upload so far, with those that were
	// there before Resume.
	Size() int64
	// Sync makes what was written survive a power cut. An upload of no bytes
	// exists from here on.
	Sync() error
	// Close gives the path free. It does not sync. Closing twice is harmless.
	Close() error
}
