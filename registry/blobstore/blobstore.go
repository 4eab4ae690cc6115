// Package blobstore keeps the registry's bytes. It knows only paths and bytes.
// The database knows what the bytes are, whether they are complete and what
// refers to them.
//
// Every upload gets a new path that is never used again. The bytes at a path
// only grow until they are removed for good. So a removal need not check whether
// another upload has written to the path.
//
// The store makes the paths. A client neither sees nor sends one. Any other path
// is refused with [ErrPath].
//
// [Dir] keeps bytes in a directory, [S3] in a bucket; [Moving] moves them from one to
// the other; [Open] opens each. A new
// implementation must pass the suite in blobstoretest.
package blobstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// The errors that users of a store tell apart.
var (
	// ErrNotFound: there are no bytes at the path.
	ErrNotFound = errors.New("no bytes at this path")
	// ErrBusy: another writer has the path open.
	ErrBusy = errors.New("another writer has this path open")
	// ErrPath: this is not a path that the store makes.
	ErrPath = errors.New("not a path of the blob store")
	// ErrRange: the offset is negative or after the end.
	ErrRange = errors.New("offset outside the bytes")
	// ErrGone: the stored part of an upload is missing or has changed. The
	// upload cannot be resumed.
	ErrGone = errors.New("the stored part of the upload is missing or has changed")
	// ErrFull: the disk, or the quota, is full.
	ErrFull = errors.New("the blob store is full")
	// ErrUnavailable: the store does not answer, or answers with an error. A
	// retry may succeed.
	ErrUnavailable = errors.New("the blob store is unavailable")
	// ErrOverloaded: the store asks for fewer requests.
	ErrOverloaded = errors.New("the blob store is overloaded")
)

// wrap says what was attempted. It returns nil if there is no error.
func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Store keeps bytes. It is safe for concurrent use.
type Store interface {
	// Create begins an upload at a new path. The store writes nothing before the
	// first Write, Sync or Finish. So if the registry records Path first, a
	// crash never leaves bytes that the database does not know. The context is
	// for this call only; the writer outlives it.
	Create(ctx context.Context) (Writer, error)
	// Resume continues an upload, in this process or another. state is the
	// writer's State after the last recorded Sync, nil if there was none. The
	// upload continues after that Sync, or later if more is stored and can be
	// opened: compare Size. A path has one writer at a time: ErrBusy. Resume, or
	// the first use of the writer, fails with ErrGone when the stored upload
	// does not match state.
	Resume(ctx context.Context, path string, state []byte) (Writer, error)
	// Open reads finished bytes, from an offset to the end. Unfinished bytes may
	// be readable or not. The offset may equal the size; beyond it, ErrRange. If
	// the bytes are removed meanwhile, the reader reads to the end or fails: it
	// never returns other bytes. ErrNotFound.
	Open(ctx context.Context, path string, offset int64) (io.ReadCloser, error)
	// Stat returns the number of bytes at a path. ErrNotFound.
	Stat(ctx context.Context, path string) (size int64, err error)
	// Remove removes the bytes at a path. It is idempotent: an empty path is
	// success. After it returns, the bytes do not come back after a power cut. A
	// store that knows of a writer at the path may refuse with ErrBusy: the
	// writer could store bytes later that the database does not know.
	Remove(ctx context.Context, path string) error
}

// Walker is a store that can list what it holds.
type Walker interface {
	// Walk calls fn for each path, in no order, with its size and the time of
	// its last write. It may miss paths that are added or removed meanwhile. It
	// stops at the first error of fn and returns it.
	Walk(ctx context.Context, fn func(path string, size int64, written time.Time) error) error
}

// Redirector is a store from which clients can fetch bytes directly.
type Redirector interface {
	// Redirect returns a URL of the bytes at a path. It is valid for a limited
	// time, for every client that has it. Redirect does not check that there are
	// bytes.
	Redirect(ctx context.Context, path string) (url string, err error)
}

// Writer appends to an upload. It is for one goroutine.
type Writer interface {
	// Write appends. After an error the upload may hold a part of p; Size says
	// how much.
	io.Writer
	// Path names the upload. It is known from the start and never changes.
	Path() string
	// Size is the number of bytes of the upload so far, including those written
	// before Resume.
	Size() int64
	// Sync makes the written bytes survive a power cut.
	Sync() error
	// State is what Resume needs to continue after the last Sync. It is small,
	// and nil where the path is enough.
	State() []byte
	// Finish is the last Sync. After it the bytes (there may be none) can be
	// opened, and nothing may be written.
	Finish() error
	// Close releases the path. It does not sync. It is idempotent.
	Close() error
}

// Open opens the store at a location: a directory, or a bucket as
//
//	s3://BUCKET[/PREFIX][?endpoint=URL&region=REGION&part-size=MIB]
//
// S3Config explains the parts. NEW,from=OLD is a bucket to which the bytes of a directory move: Moving.
func Open(ctx context.Context, location string) (Store, error) {
	if _, err := Check(location); err != nil {
		return nil, err
	}
	if to, from, moves := strings.Cut(location, movingFrom); moves {
		return openMoving(ctx, to, from)
	}
	if !strings.HasPrefix(location, "s3:") {
		return OpenDir(location)
	}
	c, err := ParseS3(location)
	if err != nil {
		return nil, err
	}
	return OpenS3(ctx, c)
}

// Check refuses a location that Open refuses by its text, and reports whether clients can fetch from the store.
func Check(location string) (direct bool, err error) {
	to, _, moves := strings.Cut(location, movingFrom)
	if strings.HasPrefix(to, "s3:") {
		_, err := ParseS3(to)
		return !moves, err
	}
	if scheme, _, ok := strings.Cut(to, "://"); ok {
		return false, fmt.Errorf("open blob store %q: %s:// is not supported: want a directory, or s3://BUCKET/PREFIX", location, scheme)
	}
	if moves {
		return false, fmt.Errorf("open blob store %q: a move leads from a directory to s3://BUCKET/PREFIX", location)
	}
	return false, nil
}

// ParseS3 reads an s3:// location.
func ParseS3(location string) (S3Config, error) {
	c, err := parseS3(location)
	return c, wrap(fmt.Sprintf("blob store %q", location), err)
}

func parseS3(location string) (c S3Config, err error) {
	u, err := url.Parse(location)
	if err != nil {
		return c, errors.Unwrap(err) // the message already has the location
	}
	if u.Scheme != "s3" || u.Host == "" || u.User != nil || u.Fragment != "" {
		return c, errors.New("want s3://BUCKET/PREFIX; credentials come from the environment, not from the location")
	}
	c.Bucket, c.Prefix = u.Host, strings.Trim(u.Path, "/")
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return c, err
	}
	for name, values := range query {
		value := values[len(values)-1]
		switch name {
		case "endpoint":
			c.Endpoint = value
		case "region":
			c.Region = value
		case "part-size":
			mib, err := strconv.ParseInt(value, 10, 32)
			if err != nil {
				return c, fmt.Errorf("part-size %q: want a number of MiB", value)
			}
			c.PartSize = mib << 20
		default:
			return c, fmt.Errorf("%q is not a setting: want endpoint, region or part-size", name)
		}
	}
	return c.withDefaults()
}

// withDefaults sets the defaults and checks the values.
func (c S3Config) withDefaults() (S3Config, error) {
	c.Endpoint = cmp.Or(c.Endpoint, "https://s3.amazonaws.com")
	c.Region = cmp.Or(c.Region, os.Getenv("AWS_REGION"))
	c.PartSize = cmp.Or(c.PartSize, 16<<20)
	if c.PartSize < minPartSize || c.PartSize > maxPartSize {
		return c, fmt.Errorf("part-size is %d MiB: want %d to %d", c.PartSize>>20, minPartSize>>20, maxPartSize>>20)
	}
	if c.Bucket == "" {
		return c, errors.New("no bucket given")
	}
	for _, element := range strings.Split(c.Prefix, "/") {
		if element == "." || element == ".." || element == "" && c.Prefix != "" {
			return c, fmt.Errorf("prefix %q: want names with single slashes between them", c.Prefix)
		}
	}
	return c, nil
}
