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
// [Dir] keeps bytes in a directory, [S3] in a bucket; [Open] opens either.
// Another one is accepted when it passes the suite in blobstoretest.
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
	// ErrGone: what was stored of an upload is there no more, or is something
	// else. It cannot be gone on with.
	ErrGone = errors.New("the upload is not as it was left")
	// ErrFull: there is no space left, or none for us.
	ErrFull = errors.New("the blob store is full")
	// ErrUnavailable: the store does not answer, or not well. It may later.
	ErrUnavailable = errors.New("the blob store is unavailable")
	// ErrOverloaded: the store asks for fewer requests.
	ErrOverloaded = errors.New("the blob store is overloaded")
)

// Store keeps bytes. It is safe for concurrent use.
type Store interface {
	// Create begins an upload at a path of its own. Nothing is stored before
	// the first Write, Sync or Finish, so a caller that records Path before it
	// writes never leaves bytes behind that nobody knows, wherever it dies.
	// The context is for this call only; the writer outlives it.
	Create(ctx context.Context) (Writer, error)
	// Resume goes on with an upload, in this process or another. state is the
	// writer's State after the last Sync that the caller has recorded, nil if
	// there was none. The upload goes on after that Sync, or further on if more
	// is stored and can be opened: compare Size. Only one writer at a time may
	// have a path: ErrBusy. Resume, or the first use of the writer, fails with
	// ErrGone when the upload is not as state says.
	Resume(ctx context.Context, path string, state []byte) (Writer, error)
	// Open reads what was finished, from an offset to the end. What was not
	// finished may be there or not. The offset may be the end itself;
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

// Redirector is a store whose bytes clients can fetch for themselves.
type Redirector interface {
	// Redirect is an address of the bytes at a path, for a while and for
	// whoever has it. Whether there are any is not looked at.
	Redirect(ctx context.Context, path string) (url string, err error)
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
	// Sync makes what was written survive a power cut.
	Sync() error
	// State is what Resume needs to go on after the last Sync. It is small, and
	// nil where the path is enough.
	State() []byte
	// Finish is Sync for the last time. From here on the bytes, or that there
	// are none, can be opened. Nothing may be written after it.
	Finish() error
	// Close gives the path free. It does not sync. Closing twice is harmless.
	Close() error
}
