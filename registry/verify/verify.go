// Package verify checks the content of a registry against its database, and repairs
// what it can: it marks blobs whose bytes are lost or damaged, so that the next push
// replaces them. It promises not to disturb requests and collectors that run
// meanwhile, and to report only defects that two looks have seen. It deletes nothing.
//
// Begin with [Run].
package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/registry/internal/statement"
	"github.com/exeunt/exeunt/sqldb"
)

// Problem is a kind of finding.
type Problem string

// The problems. The first four lose content, the others waste space.
const (
	// BlobMissing: a blob has no bytes.
	BlobMissing Problem = "blob-missing"
	// BlobDamaged: the bytes of a blob do not match its digest or its size.
	BlobDamaged Problem = "blob-damaged"
	// BlobUnreadable: the bytes of a blob cannot be read.
	BlobUnreadable Problem = "blob-unreadable"
	// ManifestDamaged: a manifest does not match its digest, or refers to
	// missing content.
	ManifestDamaged Problem = "manifest-damaged"
	// BytesUnknown: the blob store holds bytes that no row names.
	BytesUnknown Problem = "bytes-unknown"
	// NeverReviewed: nothing uses the subject, and it has no review.
	NeverReviewed Problem = "never-reviewed"
)

// Finding is one defect.
type Finding struct {
	Problem Problem `json:"problem"`
	Subject string  `json:"subject"` // a digest, a repository with a digest, or a path of the blob store
	Detail  string  `json:"detail"`  // for people
}

func (f Finding) String() string { return fmt.Sprintf("%s: %s: %s", f.Problem, f.Subject, f.Detail) }

// Result is how much Run has checked.
type Result struct {
	Manifests int64 `json:"manifests"`
	Blobs     int64 `json:"blobs"`
	Bytes     int64 `json:"bytes"` // bytes read
	Paths     int64 `json:"paths"`
	Findings  int64 `json:"-"`
}

// Options are the settings of Run. Zero values have a default.
type Options struct {
	// Quick compares the sizes of blobs, and reads no bytes.
	Quick bool
	// Repair marks missing or damaged blobs: clients are told that they do not
	// exist, and the next push replaces them. Unless Quick, it removes the mark
	// from blobs that are intact again.
	Repair bool
	// Found is called for each finding, one at a time. May be nil.
	Found func(Finding)
	// Progress is called from time to time. May be nil.
	Progress func(Result)
}

// Run checks the invariants of docs/spec/registry-tracking.md: every manifest
// has its blobs, every blob has its bytes and they match its digest, everything
// unused is queued, and the database knows all bytes.
//
// Without Repair it only reads. Requests and collectors may run meanwhile.
// Run checks each suspect a second time, in an order in which only a real
// defect shows twice: rows are deleted before bytes, and users before what they
// use.
func Run(ctx context.Context, db *sqldb.DB, blobs blobstore.Store, o Options) (Result, error) {
	walker, ok := blobs.(blobstore.Walker)
	if !ok {
		return Result{}, fmt.Errorf("verify: the blob store (%T) cannot list its paths", blobs)
	}
	v := &verifier{db: db, blobs: blobs, walker: walker, options: o}
	if err := v.manifests(ctx); err != nil {
		return v.total(), fmt.Errorf("verify manifests: %w", err)
	}
	if err := v.blobRows(ctx); err != nil {
		return v.total(), fmt.Errorf("verify blobs: %w", err)
	}
	if err := v.paths(ctx); err != nil {
		return v.total(), fmt.Errorf("verify the blob store: %w", err)
	}
	return v.total(), nil
}

type verifier struct {
	db      *sqldb.DB
	blobs   blobstore.Store
	walker  blobstore.Walker
	options Options

	mu  sync.Mutex
	sum Result // guarded by mu
}

// add counts what was checked.
func (v *verifier) add(more Result) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sum.Manifests += more.Manifests
	v.sum.Blobs += more.Blobs
	v.sum.Paths += more.Paths
	v.sum.Bytes += more.Bytes
	if v.options.Progress != nil {
		v.options.Progress(v.sum)
	}
}

func (v *verifier) total() Result {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.sum
}

func (v *verifier) found(problem Problem, subject, format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sum.Findings++
	if v.options.Found != nil {
		v.options.Found(Finding{problem, subject, fmt.Sprintf(format, args...)})
	}
}

// readBuffer is how many bytes are read at once.
const readBuffer = 256 << 10

var buffers = sync.Pool{New: func() any { return new([readBuffer]byte) }}

// blobPage is how many blobs are checked between two queries.
const blobPage = 500

// storedBlob is a row of blobs.
type storedBlob struct {
	id      int64
	digest  digest.Digest
	path    string
	size    int64
	small   bool // the database has the bytes
	damaged bool // marked as damaged before
	tracked bool // in use, or queued for review
}

func (v *verifier) blobRows(ctx context.Context) error {
	last := int64(0)
	for {
		page, err := v.blobPage(ctx, last)
		if err != nil || len(page) == 0 {
			return err
		}
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(max(4, runtime.GOMAXPROCS(0))) // most of them wait for the store
		for _, b := range page {
			group.Go(func() error { return v.blob(ctx, b) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
		last = page[len(page)-1].id
	}
}

func (v *verifier) blobPage(ctx context.Context, after int64) (page []storedBlob, err error) {
	err = sqldb.Each(ctx, v.db, sqldb.Into(&page, func(b *storedBlob) []any {
		return []any{&b.id, &b.digest, &b.path, &b.size, &b.small, &b.damaged, &b.tracked}
	}), listBlobs, after, blobPage)
	return page, err
}

// blob checks one blob, and reads its row again if something is wrong: a
// collected blob loses its row before its bytes.
func (v *verifier) blob(ctx context.Context, b storedBlob) error {
	problem, detail := v.content(ctx, b)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if problem != "" || b.damaged {
		var one int64
		still, err := v.db.Row(ctx, findBlob, []any{b.digest.String(), b.path}, &one)
		if err == nil && still {
			err = v.report(ctx, b, problem, detail)
		}
		if err != nil {
			return err
		}
	}
	if !b.tracked {
		v.found(NeverReviewed, b.digest.String(), "no manifest uses the blob, and it is not in gc_blob_review_queue")
	}
	v.add(Result{Blobs: 1})
	return nil
}

// content compares the bytes of a blob with its row.
func (v *verifier) content(ctx context.Context, b storedBlob) (problem Problem, detail string) {
	size, actual := int64(0), digest.Digest("")
	var err error
	if v.options.Quick && !b.small {
		size, err = v.blobs.Stat(ctx, b.path)
	} else {
		size, actual, err = v.read(ctx, b)
	}
	switch {
	case errors.Is(err, blobstore.ErrNotFound):
		return BlobMissing, "its bytes are not in the blob store"
	case err != nil:
		return BlobUnreadable, err.Error()
	case size != b.size:
		return BlobDamaged, fmt.Sprintf("there are %d bytes, not %d", size, b.size)
	case actual != "" && actual != b.digest:
		return BlobDamaged, fmt.Sprintf("its bytes have digest %s", actual)
	}
	return "", ""
}

func (v *verifier) read(ctx context.Context, b storedBlob) (size int64, actual digest.Digest, err error) {
	if !registry.Supported(b.digest.Algorithm()) {
		return 0, "", fmt.Errorf("%s is not a digest algorithm that is known here", b.digest.Algorithm())
	}
	f, err := v.open(ctx, b)
	if err != nil {
		return 0, "", err
	}
	buffer := buffers.Get().(*[readBuffer]byte)
	defer buffers.Put(buffer)
	hash := b.digest.Algorithm().Hash()
	for err == nil {
		var n int
		n, err = f.Read(buffer[:])
		hash.Write(buffer[:n])
		size += int64(n)
		v.add(Result{Bytes: int64(n)})
		if ctx.Err() != nil {
			err = ctx.Err()
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return size, digest.NewDigest(b.digest.Algorithm(), hash), errors.Join(err, f.Close())
}

func (v *verifier) open(ctx context.Context, b storedBlob) (io.ReadCloser, error) {
	if !b.small {
		return v.blobs.Open(ctx, b.path, 0)
	}
	var content []byte
	found, err := v.db.Row(ctx, statement.FindSmall, []any{b.digest.String()}, &content)
	if err == nil && !found {
		err = blobstore.ErrNotFound
	}
	return io.NopCloser(bytes.NewReader(content)), err
}

// paths looks for bytes that the database does not know. A row names a path from
// before its first byte until after its last. So an unknown path that is still
// there at a second look stays unknown.
func (v *verifier) paths(ctx context.Context) error {
	suspects := map[string]bool{}
	err := v.walker.Walk(ctx, func(path string, _ int64, _ time.Time) error {
		v.add(Result{Paths: 1})
		var known bool
		if _, err := v.db.Row(ctx, pathKnown, []any{path}, &known); err != nil {
			return err
		}
		if !known {
			suspects[path] = true
		}
		return nil
	})
	if err != nil || len(suspects) == 0 {
		return err
	}
	return v.walker.Walk(ctx, func(path string, size int64, written time.Time) error {
		if suspects[path] {
			v.found(BytesUnknown, path, "%d bytes, last written %s", size, written.UTC().Format(time.RFC3339))
		}
		return nil
	})
}
